"""The maps of the item vectors of the loaded versions."""

from weakref import WeakKeyDictionary

from turret.service.errors import NotFoundError
from turret.tower.bundle.bundle import Bundle
from turret.tower.format.item_map import ItemMap, open_item_map


class OpenedMaps:
    """Opens the map of a version at its first use."""

    def __init__(self) -> None:
        self._maps: WeakKeyDictionary[Bundle, ItemMap] = WeakKeyDictionary()

    def of(self, bundle: Bundle) -> ItemMap:
        """Return the map of a version. Raises NotFoundError if it has none, BundleError if it is damaged."""
        known = self._maps.get(bundle)
        if known is None:
            known = open_item_map(bundle.folder, bundle.manifest)
            if known is None:
                message = (
                    f"version {bundle.manifest.version} has no map of its items, as it was exported by an "
                    "earlier release; export the run again with `turret export`"
                )
                raise NotFoundError("version", bundle.manifest.version, message)
            self._maps[bundle] = known
        return known
