"""Checkpoint bytes: a local folder or S3, through one seam (`CheckpointStore`) over one library (obstore).

store = CheckpointStore(open_store(StorageConfig(url="file:///var/lib/tabwise/storage")))
store.put(folder, ["config.json", "model.safetensors"], version=18, parent=17, probe=probe, created_at=now)
store.fetch(18, Path("/srv/serving/v000018"))
"""

from shared.storage.checkpoints import CheckpointStore as CheckpointStore
from shared.storage.config import StorageConfig as StorageConfig
from shared.storage.config import open_store as open_store
