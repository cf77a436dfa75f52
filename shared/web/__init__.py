"""What every FastAPI service has alike: error shape, body limit, health and metrics routes."""
