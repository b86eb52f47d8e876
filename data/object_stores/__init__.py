"""Files in object stores, by URL (`s3://`, `gs://`): logs that are read, prepared data that is written."""

__all__ = ["local_copies", "place", "prepared_objects"]
