"""The resolver's step: what is read, when, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from certs.kubernetes_api import Conflict, KubernetesError
from rules import load_rules
from rules.cuda.image_catalog import ImageCatalog
from rules.kube.image_reference import Image
from rules.text.i18n import Text
from tests.support.memory import Memory
from tests.support.node_builders import compatibility_rule, image_catalog
from tests.webhook.images.resolver.test_fact_store import DAY, digest
from tests.webhook.images.resolver.test_image_use import STEPS, container, pod
from webhook.cluster.reflector import Listed
from webhook.images.errors import ImageError, Reason
from webhook.images.inspection import InspectedImage, PlatformConfig
from webhook.images.resolver import metrics
from webhook.images.resolver.fact_store import NAMES, UNUSED_S
from webhook.images.resolver.image_use import WATCHED
from webhook.images.resolver.pages import pages
from webhook.images.resolver.resolver import HUNG_S, Resolver
from webhook.yaml_output import dump_yaml

NAMESPACE = "kube-public"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
START = 1_800_000_000.0
APP = "registry.example.com/team/app:1"
ENV = {"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}
RULE = compatibility_rule()


def inspected(reference: str, of: str, env: dict[str, str] | None = None) -> InspectedImage:
    """Return an image whose digest is of a text."""
    config = PlatformConfig("linux", "amd64", digest(of), ENV if env is None else env, {})
    return InspectedImage(reference, digest(of), (config,))


@dataclass
class FakeReader:
    """Reads images from a table: an image, or why it cannot be read. asked: the method and the image."""

    images: dict[str, InspectedImage | Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def inspect(self, image: Image, platforms: Sequence[str] = ()) -> Future[InspectedImage]:
        """Return the image."""
        del platforms
        return self._answer("GET", image)

    def digest(self, image: Image) -> Future[str]:
        """Return its digest."""
        future: Future[str] = Future()
        answer = self._answer("HEAD", image)
        error = answer.exception()
        if error:
            future.set_exception(error)
        else:
            future.set_result(answer.result().digest)
        return future

    def _answer(self, method: str, image: Image) -> Future[InspectedImage]:
        self.asked.append(f"{method} {image.canonical}")
        future: Future[InspectedImage] = Future()
        image_or_error = self.images.get(image.canonical, ImageError(Reason.NOT_FOUND, Text("no such image")))
        if isinstance(image_or_error, Exception):
            future.set_exception(image_or_error)
        else:
            future.set_result(image_or_error)
        return future


class World:
    """A resolver with an API server and registries in memory, and a clock."""

    def __init__(self, *rules: str, api: Memory | None = None) -> None:
        self.now = 0.0
        self.api = api or Memory()
        self.reader = FakeReader({APP: inspected(APP, "one")})
        self.resolver = Resolver(
            self.api, self.reader, NAMESPACE, monotonic=lambda: self.now, clock=lambda: START + self.now
        )
        self.rules = [yaml.safe_load(rule) for rule in rules or (RULE,)]
        self.pods(APP)

    def pods(self, *images: str) -> None:
        """Let pods with a GPU use these images, and list everything."""
        for resource, steps in WATCHED:
            self.resolver.use.change(resource, steps, Listed([]))
        self.resolver.use.change(
            *STEPS["pods"], Listed([pod(container(image), name=image) for image in images])
        )

    def steps(self, after_s: float = 0.0) -> None:
        """Do three steps, as much as one image needs; the watch shows what was written."""
        self.now += after_s
        for _ in range(3):
            self.sync()
            self.resolver.step()
            self.now += 1

    def sync(self) -> None:
        """Show the resolver the rules and its own ConfigMaps."""
        own = [config_map for path, config_map in self.api.objects.items() if path.startswith(CONFIG_MAPS)]
        shown = [
            config_map for config_map in own if "gpugate.dev/type" in config_map["metadata"].get("labels", {})
        ]
        for number, rule in enumerate(self.rules):
            rule["metadata"].setdefault("resourceVersion", f"rule-{number}")
        self.resolver.rules.change(Listed([*self.rules, *shown]))

    def catalog(self) -> ImageCatalog:
        """Return what the gate reads."""
        objects = [stored for stored in self.api.objects.values() if stored.get("data")]
        loaded = load_rules(
            [(document["metadata"]["name"], dump_yaml(document)) for document in objects], NAMESPACE
        )
        assert () == loaded.errors
        return ImageCatalog(row for rule in loaded.rules.images for row in rule.rows)


def fetches(result: str) -> float:
    """Return how many attempts had a result."""
    return float(metrics.FETCHES.labels(result)._value.get())


def test_an_unknown_image_is_read_once_and_its_facts_are_written() -> None:
    """Into a ConfigMap that the gate accepts, by digest and by tag."""
    world = World()
    world.steps()
    facts = world.catalog().find(APP)

    assert [f"GET {APP}"] == world.reader.asked
    assert ("12.4", ["cuda>=12.4"], ("linux/amd64",)) == (
        str(facts.cuda),
        [constraint.text for constraint in facts.constraints],
        facts.platforms,
    )
    assert "12.4" == str(world.catalog().find(f"mirror.example.com/x@{digest('one')}").cuda)


def test_nothing_is_read_before_everything_was_listed() -> None:
    """Otherwise images in use would seem unused."""
    world = World()
    world.resolver.step()

    assert (["rules"], [], []) == (world.resolver.awaited, world.reader.asked, world.api.calls)


@pytest.mark.parametrize(
    ("image", "read"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", False),  # its requirement is a fact of the table
        ("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", True),  # its requirement is unknown
        ("team/app:1", True),
        ("<image>", False),
    ],
)
def test_images_are_read_if_their_cuda_version_or_requirement_is_unknown(image: str, read: bool) -> None:
    """By the same catalogue as the gate's."""
    world = World()
    world.pods(image)
    world.steps()

    assert read is bool(world.reader.asked)


def test_the_cuda_version_of_the_built_in_catalogue_stays() -> None:
    """CUDA_VERSION may be that of an older base image."""
    image = "docker.io/vllm/vllm-openai:v0.6.5"
    torch = "docker.io/pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"
    world = World()
    world.reader.images[torch] = inspected(torch, "torch", ENV | {"CUDA_VERSION": "11.8.0"})
    world.pods(torch, image)
    world.steps()

    assert [f"GET {torch}"] == world.reader.asked
    assert world.catalog().find(torch).cuda is None  # so that the gate uses its own


def test_an_image_that_a_catalogue_of_the_cluster_states_is_not_read() -> None:
    """And what was read before is dropped, because its rows would take precedence."""
    world = World()
    world.steps()
    before = world.catalog().find(APP).row
    ours = image_catalog({"image": "*/team/app:*", "cuda": "11.8"}, name="ours")
    world.rules.append(yaml.safe_load(ours))
    world.steps()

    assert before.startswith("gpugate-images-")
    assert world.catalog().find(APP).row == ""
    assert [f"GET {APP}"] == world.reader.asked


def test_without_a_compatibility_rule_no_image_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """Once a rule is enabled, it is."""
    world = World(compatibility_rule(enabled="false"))
    world.steps()
    before = list(world.reader.asked)
    enabled = yaml.safe_load(RULE)
    enabled["metadata"]["resourceVersion"] = "next"
    world.rules = [enabled]
    world.steps()

    assert "there are no compatibility rules" in caplog.text
    assert ([], [f"GET {APP}"]) == (before, world.reader.asked)


def test_a_restart_reads_nothing_again_and_a_tag_after_a_day() -> None:
    """First only its digest; the image again if the tag was moved."""
    world = World()
    world.steps()
    after = World(api=world.api)
    after.steps(DAY - 10)
    early = list(after.reader.asked)
    after.steps(10)
    unchanged = list(after.reader.asked)
    after.reader.images[APP] = inspected(APP, "two", ENV | {"CUDA_VERSION": "13.0.0"})
    after.steps(DAY)

    assert ([], [f"HEAD {APP}"]) == (early, unchanged)
    assert [f"HEAD {APP}", f"HEAD {APP}", f"GET {APP}"] == after.reader.asked
    assert "13.0" == str(after.catalog().find(APP).cuda)


@pytest.mark.parametrize("reason", list(Reason))
def test_an_image_that_cannot_be_read_is_counted_logged_and_tried_later(
    reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason as a word; the gate decides as before."""
    world = World()
    world.reader.images[APP] = ImageError(reason, Text("registry.example.com: why"))
    before = fetches(reason)
    world.steps()
    (line,) = [record.getMessage() for record in caplog.records if "not read" in record.getMessage()]

    assert line.startswith(f"image {APP}: not read ({reason}): registry.example.com: why; next attempt in ")
    assert (1.0, [f"GET {APP}"], []) == (
        fetches(reason) - before,
        world.reader.asked,
        [path for path in world.api.objects if path.startswith(CONFIG_MAPS)],
    )
    world.reader.images[APP] = inspected(APP, "one")
    world.steps(60)
    assert "12.4" == str(world.catalog().find(APP).cuda)


def test_a_tag_that_cannot_be_checked_keeps_its_facts() -> None:
    """The registry is down a day later."""
    world = World()
    world.steps()
    world.reader.images[APP] = ImageError(Reason.UNAVAILABLE, Text("down"))
    world.steps(DAY)

    assert "12.4" == str(world.catalog().find(APP).cuda)


def test_requirements_that_are_too_long_are_left_out() -> None:
    """The other facts are written."""
    long = {f"NVIDIA_REQUIRE_{number}": "cuda>=12.4 " * 80 for number in range(30)}
    world = World()
    world.reader.images[APP] = inspected(APP, "one", ENV | long)
    world.steps()

    assert ("12.4", ()) == (str(world.catalog().find(APP).cuda), world.catalog().find(APP).constraints)


def test_an_image_with_hostile_facts_writes_nothing() -> None:
    """Its platform or its digest is none."""
    platform = PlatformConfig("linux", "amd64: {}\n", digest("x"), ENV, {})
    for hostile in (
        InspectedImage(APP, digest("x"), (platform,)),
        InspectedImage(APP, "sha256:x", inspected(APP, "x").platforms),
    ):
        world = World()
        world.reader.images[APP] = hostile
        before = fetches("invalid")
        world.steps()

        assert (1.0, {}) == (fetches("invalid") - before, world.api.objects)


def test_a_config_map_without_images_is_no_rule_and_keeps_what_others_set() -> None:
    """A ConfigMap of the manifests gets its labels with the first row, and loses them with the last."""
    world = World()
    for name in NAMES:
        world.api.put(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"app": "x"}}})
    world.steps()
    (path,) = [path for path, config_map in world.api.objects.items() if config_map.get("data")]
    filled = world.api.objects[path]["metadata"]
    world.pods()
    world.steps(UNUSED_S)
    emptied = world.api.objects[path]

    assert ({"app": "x"}, {}) == (emptied["metadata"]["labels"], emptied["data"])
    assert "ImageCatalog" == filled["labels"]["gpugate.dev/type"]
    assert ["gpugate.dev/image-times"] == list(filled["annotations"])
    assert "annotations" not in emptied["metadata"]


def test_a_write_conflict_is_repeated_with_the_next_step() -> None:
    """Another process was ahead, during a rollout by hand."""
    world = World()
    failures = iter([Conflict("409")])

    def fail(method: str, path: str) -> None:
        del path
        if method in {"POST", "PUT"} and (error := next(failures, None)):
            raise error

    world.api.before = fail
    with pytest.raises(KubernetesError):
        world.steps()
    world.steps()

    assert "12.4" == str(world.catalog().find(APP).cuda)
    assert [f"GET {APP}"] == world.reader.asked


def test_it_is_alive_while_the_api_server_is_not() -> None:
    """A restart would not help."""
    world = World()
    world.sync()
    world.now += HUNG_S

    def fail(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path}: 500")

    world.api.before = fail
    world.resolver.step()
    world.now += HUNG_S
    with pytest.raises(KubernetesError):
        world.resolver.step()

    assert not world.resolver.is_hung


def test_a_config_map_that_somebody_deleted_is_written_again() -> None:
    """From memory: nothing is read for it."""
    world = World()
    world.steps()
    world.api.objects.clear()
    world.steps()

    assert ("12.4", [f"GET {APP}"]) == (str(world.catalog().find(APP).cuda), world.reader.asked)


def test_a_step_without_a_change_writes_nothing() -> None:
    """The gate reads a ConfigMap after each write."""
    world = World()
    world.steps()
    written = [call for call in world.api.calls if not call.startswith("GET")]
    world.steps(3600)

    assert 1 == len(written)
    assert written == [call for call in world.api.calls if not call.startswith("GET")]


@pytest.mark.parametrize("reason", [Reason.NOT_FOUND, Reason.UNAVAILABLE, Reason.RATE_LIMITED])
def test_images_that_always_fail_are_asked_for_less_and_less(reason: Reason) -> None:
    """50 images of one registry in a day, with pods that come and go: fewer than 20 requests for each."""
    images = [f"registry.example.com/x:{number}" for number in range(50)]
    world = World()
    world.reader.images = dict.fromkeys(images, ImageError(reason, Text("why"), 5.0))
    for minute in range(24 * 60):
        world.now = 60.0 * minute
        world.pods(*images)
        world.steps()
    first_hour = 24 * 60 * len(images)

    assert len(images) <= len(world.reader.asked) < 20 * len(images) < first_hour


def test_the_metrics_say_how_many_images_are_known() -> None:
    """None of them has the name of an image."""
    world = World()
    world.pods(APP, "registry.example.com/missing:1", "nvidia/cuda:12.4.1-base-ubuntu22.04")
    world.steps()
    world.steps()
    states = {state: metrics.IMAGES.labels(state)._value.get() for state in ("known", "read", "failed")}

    assert {"known": 1, "read": 1, "failed": 1} == states


def page(world: World, path: str) -> tuple[str, str]:
    """Return status and text of a page."""
    said: list[str] = []
    app: Any = pages(world.resolver)
    body = app({"PATH_INFO": path}, lambda status, _: said.append(status))
    return said[0], b"".join(body).decode()


def test_it_is_ready_once_everything_was_listed_and_alive_while_it_does_steps() -> None:
    """A step that hangs for minutes is a reason to restart."""
    world = World()
    first = page(world, "/readyz")
    world.steps()
    alive = page(world, "/healthz")
    world.now += HUNG_S + 1

    assert ("503 Service Unavailable", "waiting for rules\n") == first
    assert [("200 OK", "ok\n")] * 2 == [alive, page(world, "/readyz")]
    assert [("503 Service Unavailable", "hung\n"), ("404 Not Found", "not found\n")] == [
        page(world, "/healthz"),
        page(world, "/other"),
    ]
