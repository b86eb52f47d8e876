"""The production profile on a real container engine: `make test-compose`."""
