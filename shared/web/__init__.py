"""What every FastAPI service has alike: error shape, keys, body limit, health and metrics routes."""
