"""Reader of images for threads: one client in an event loop of its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from rules.kube.image_reference import Image
from webhook.images.inspection import InspectedImage
from webhook.images.registry import ClientSettings, CredentialSource, RegistryClient

T = TypeVar("T")


class ImageReader:
    """Reads images from registries, four at a time; a context manager, used from any thread.

    The futures raise ImageError.
    """

    def __init__(self, settings: ClientSettings, credentials: CredentialSource | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="image-reader", daemon=True)
        self._settings, self._credentials = settings, credentials

    def __enter__(self) -> Self:
        self._thread.start()
        self._client = self._submit(self._connect()).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._submit(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def inspect(self, image: Image, platforms: Sequence[str] = ()) -> Future[InspectedImage]:
        """Return the configs of an image, for the given platforms or at most 8."""
        return self._submit(self._client.inspect(image, platforms))

    def digest(self, image: Image) -> Future[str]:
        """Return the digest that a tag has now."""
        return self._submit(self._client.digest(image))

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _connect(self) -> RegistryClient:
        return RegistryClient(self._settings, self._credentials)

    async def _end(self) -> None:
        """Cancel what is not finished, and close the connections."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()
