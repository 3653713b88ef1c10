"""Open the store of a place: a folder on this machine, or a bucket."""

from __future__ import annotations

from omnigraph.storage.folder import FolderStore
from omnigraph.storage.location import Location, require_s3
from omnigraph.storage.objects import ObjectStore, Observer


def open_store(root: Location, observe: Observer | None = None) -> ObjectStore:
    """Return the store that holds `root`; nothing is contacted yet."""
    if root.is_local:
        return FolderStore(observe)
    require_s3()
    from omnigraph.storage.bucket import BucketStore

    return BucketStore.connect(root, observe)
