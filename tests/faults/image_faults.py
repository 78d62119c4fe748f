"""Faults of the image resolver, and of the registry that it reads."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.e2e.daemon import HOST, Daemon, reserve_port
from tests.e2e.installed import GPU, TEAM
from tests.e2e.resolver_process import Resolver, component
from tests.faults.broken_proxy import Errors, Hanging, InvalidBodies
from tests.faults.measure import Breaks, Fault
from tests.faults.probes import read_image, unread_image
from tests.faults.proxy import Proxy, ProxyMode
from tests.support.fake_registry import FakeRegistry, fake_registry
from tests.support.image_builders import CUDA_ENV, config, manifest
from tests.support.serving import AUTHORITY
from webhook.images.errors import Reason

if TYPE_CHECKING:
    from tests.faults.world import World

# The registry that references name; the resolver reads it from a mirror on this machine.
_REGISTRY: Final = "registry.example.com"
_KNOWN: Final = f"{_REGISTRY}/team/known:1"
# Images that come during a fault; each gets another kind of invalid response.
_NEW: Final = tuple(f"{_REGISTRY}/team/new:{number}" for number in range(3))
# The only node has CUDA 12.2.
_ENV: Final = CUDA_ENV | {"CUDA_VERSION": "13.0.0", "NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}
_DEPLOYMENTS: Final = f"/apis/apps/v1/namespaces/{TEAM}/deployments"
_FETCHES: Final = "gpugate_image_fetches_total"


def _deployment(name: str, *images: str) -> dict[str, Any]:
    """Return a Deployment with a container for each image, each with a GPU."""
    limits = {"limits": {GPU: "1"}}
    containers = [
        {"name": f"c{number}", "image": image, "resources": limits} for number, image in enumerate(images)
    ]
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


class _Registry:
    """A registry behind a proxy, and an image resolver that reads it.

    proxy: breaks the connections to the registry. process: the resolver.
    """

    proxy: Proxy
    process: Daemon
    _resolver: Resolver

    @contextmanager
    def running(self, world: World) -> Iterator[None]:
        """Install the resolver and run both, until the facts of a first image are in force."""
        folder = world.folder / "images"
        folder.mkdir(exist_ok=True)
        objects = yaml.safe_dump_all(component(folder))
        kubectl = world.cluster.kubectl
        with ExitStack() as stack:
            stack.callback(kubectl, "delete", "--wait=false", "-f", "-", input=objects)
            kubectl("apply", "-f", "-", input=objects)
            self._serve(stack.enter_context(fake_registry(folder)), stack)
            port = stack.enter_context(reserve_port()).getsockname()[1]
            self._resolver = Resolver(port, folder / "log")
            self.process = Daemon(self._argv(world, port), port, "/healthz", None, self._resolver.log)
            self.process.start()
            stack.callback(self.process.stop)
            stack.callback(kubectl, "delete", "deployment", "known", "new", "-n", TEAM, "--ignore-not-found")
            world.put(_deployment("known", _KNOWN), _DEPLOYMENTS)
            world.until(lambda: world.answers(read_image(_KNOWN)))
            yield

    def name_new_images(self, world: World) -> None:
        """Create a Deployment with images that are not known; gpugate decides without facts about them."""
        world.put(_deployment("new", *_NEW), _DEPLOYMENTS)
        assert all(world.answers(unread_image(image)) for image in _NEW)

    def failures(self, reason: Reason) -> float:
        """Return the number of attempts that failed for this reason."""
        return self._resolver.sample(f'{_FETCHES}{{result="{reason}"}}')

    def _serve(self, registry: FakeRegistry, stack: ExitStack) -> None:
        of = config(_ENV)
        for image in (_KNOWN, *_NEW):
            repository, _, tag = image.removeprefix(f"{_REGISTRY}/").partition(":")
            registry.put(repository, tag, manifest(of), of)
        url = f"https://{HOST}:{registry.port}"
        self.proxy = stack.enter_context(Proxy(url, AUTHORITY.certificate_pem))

    def _argv(self, world: World, port: int) -> list[str]:
        ca_file = world.folder / "images/ca.pem"
        ca_file.write_bytes(self.proxy.ca_pem)
        kubeconfig = world.cluster.service_account("gpugate", "gpugate-images")
        options = [f"--kubeconfig={kubeconfig}", f"--port={port}", f"--ca-file={ca_file}"]
        options += [f"--registry={_REGISTRY}", f"--mirror={_REGISTRY}={HOST}:{self.proxy.port}"]
        return [sys.executable, "-P", "-m", "webhook", "images", *options]


@contextmanager
def _down(registry: _Registry) -> Iterator[None]:
    registry.proxy.close_port()
    try:
        yield
    finally:
        registry.proxy.open_port()


@contextmanager
def _killed(registry: _Registry) -> Iterator[None]:
    registry.process.kill()
    try:
        yield
    finally:
        registry.process.start()


@contextmanager
def _hangs(registry: _Registry) -> Iterator[None]:
    over = threading.Event()
    with _proxied(partial(Hanging, over))(registry):
        try:
            yield
        finally:
            over.set()


_BreaksRegistry = Callable[[_Registry], AbstractContextManager[None]]


def _proxied(make: Callable[[], ProxyMode]) -> _BreaksRegistry:
    """Return a fault with a proxy mode."""

    @contextmanager
    def breaks(registry: _Registry) -> Iterator[None]:
        registry.proxy.mode = make()
        registry.proxy.cut()
        try:
            yield
        finally:
            registry.proxy.mode = ProxyMode()

    return breaks


def _broken(registry: _Registry, breaks: _BreaksRegistry, failures: Sequence[Reason]) -> Breaks:
    """Return a fault during which images come; it ends after attempts failed for these reasons."""

    @contextmanager
    def broken(world: World) -> Iterator[None]:
        with breaks(registry):
            registry.name_new_images(world)
            yield
            world.until(
                lambda: all(registry.failures(failure) >= n for failure, n in Counter(failures).items())
            )

    return broken


def _restored(world: World) -> bool:
    """Return whether the facts of all images that came during the fault are in force."""
    return all(world.answers(read_image(image)) for image in _NEW)


def _fault(name: str, description: str, behaviour: str, breaks: _BreaksRegistry, *failures: Reason) -> Fault:
    registry = _Registry()
    return Fault(
        name,
        description,
        behaviour,
        _broken(registry, breaks, failures),
        prepare=registry.running,
        probes=(read_image(_KNOWN),),
        restored=_restored,
    )


# What happens in each fault.
_COME: Final = f"a Deployment with {len(_NEW)} new images is created"
_NEVER: Final = (
    "gpugate never calls a registry: it decides with the facts that are written, and without facts about the "
    "new images. "
)
_PAUSES: Final = (
    _NEVER + "The resolver pauses for 3 to 5 s, and for 15 to 30 s for an image that failed; both double "
    "with each further failure. Then it writes the facts."
)

FAULTS: Final = (
    _fault(
        "registry down",
        f"the port of the registry refuses connections; meanwhile {_COME}",
        _PAUSES,
        _down,
        Reason.UNAVAILABLE,
    ),
    _fault(
        "registry hangs",
        f"the registry accepts connections and requests, and never responds; meanwhile {_COME}",
        f"{_PAUSES} A request ends after 5 s.",
        _hangs,
        Reason.TIMEOUT,
    ),
    _fault(
        "registry: 500 and 429",
        "the registry answers every request with an error, alternately 500 and 429 with `Retry-After: 1`; "
        f"meanwhile {_COME}",
        f"{_PAUSES} A pause is never shorter than `Retry-After`.",
        _proxied(Errors),
        Reason.UNAVAILABLE,
        Reason.RATE_LIMITED,
    ),
    _fault(
        "registry: wrong JSON",
        "the registry answers 200 with an HTML page of an HTTP proxy, truncated JSON, or JSON of another "
        f"type; meanwhile {_COME}",
        f"{_NEVER}Nothing is written for an invalid response; the resolver reads the image again after 15 to "
        "30 s.",
        _proxied(InvalidBodies),
        *[Reason.INVALID] * len(_NEW),
    ),
    _fault(
        "SIGKILL of the image resolver",
        f"the process is killed; {_COME}; then it is restarted",
        f"{_NEVER}A new process loads the facts that were written, and reads the rest.",
        _killed,
    ),
)
