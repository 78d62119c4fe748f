"""The image is built and pushed as docs/install.md says, holds what is locked, and runs as the base asks.

Its base is a Debian with a Python of its own, in place of Python's image, which no test can fetch.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.e2e.assets import base
from tests.e2e.engine import COMMAND_S, Engine, missing
from tests.e2e.installed import VCUDA_CORE, VCUDA_MEMORY, Installation
from tests.e2e.manifests import ROOT
from tests.e2e.serve_process import ServeProcess, eventually
from tests.e2e.test_control_plane import pod
from tests.support.pages import ENGINE, WITH_ENGINE, fences, terminal, text_of
from tests.support.release import RELEASE
from tests.webhook.server.test_security import WORKLOADS, workload

pytestmark = pytest.mark.timeout(600)

# Where the page pushes to, and under what name.
_REGISTRY: Final = "registry.example.com"
_PUSHED: Final = f"{_REGISTRY}/gpugate:{RELEASE}"
_HOME: Final = Path("opt/gpugate")
_DEPLOYMENT: Final = WORKLOADS[0]
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# Prints the packages that Python finds, its environment markers, its compilation, and their paths.
_ASK: Final = """
import importlib.metadata, json, sys, sysconfig
from packaging.markers import default_environment
found = {each.name: each.version for each in importlib.metadata.distributions()}
tag, library = sys.implementation.cache_tag, sysconfig.get_path("purelib")
print(json.dumps({"found": found, "markers": default_environment(), "tag": tag, "library": library}))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Yield an engine that has only the base image."""
    if absent := missing():
        pytest.skip(f"no {', '.join(absent)}: docs/contributing.md says what the image takes")
    with Engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


def typed(engine: Engine, script: str) -> str:
    """Type commands at the top of the tree, with the engine's registry; return what the terminal shows."""
    environment = {"PATH": str(engine.docker.parent), "HOME": str(engine.docker.parent)}
    status, shown = terminal(script.replace(_REGISTRY, engine.registry), ROOT, environment, COMMAND_S)
    assert not status, shown
    return shown


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    """Return the image's name, built and pushed as the page says, and pulled from where it was pushed."""
    for page in WITH_ENGINE:
        for fence in fences(text_of(page), page):
            if fence.needs == ENGINE and not fence.unrun:
                typed(engine, fence.text)
    name = _PUSHED.replace(_REGISTRY, engine.registry)
    engine("rmi", name)  # the steps too that podman would repeat for another base: it does not look at an ARG
    engine("pull", "--quiet", name)
    return name


@pytest.fixture(scope="module")
def root(engine: Engine, image: str) -> Path:
    """Return the root file system of the image."""
    return Path(engine("image", "mount", image).strip())


def confined() -> list[str]:
    """Return options for the security context of the Deployment; seccomp is the engine's default."""
    spec, container = workload(_DEPLOYMENT)
    user, held = spec["securityContext"], container["securityContext"]
    return [
        f"--user={user['runAsUser']}:{user['runAsGroup']}",
        f"--read-only={str(held['readOnlyRootFilesystem']).lower()}",
        "--read-only-tmpfs=false",
        *(f"--cap-drop={capability}" for capability in held["capabilities"]["drop"]),
        *([] if held["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
        f"--memory={container['resources']['limits']['memory'].removesuffix('i')}",
    ]


def run(engine: Engine, image: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """Return the output of a container of the image with the security context of the Deployment."""
    return engine("run", "--rm", *confined(), *options, image, *arguments)


@pytest.fixture(scope="module")
def python(engine: Engine, image: str) -> dict[str, Any]:
    """Return facts about the image's Python."""
    facts: dict[str, Any] = json.loads(run(engine, image, "-c", _ASK, options=["--entrypoint=python"]))
    return facts


def test_the_image_starts_gpugate_as_an_unprivileged_user(engine: Engine, image: str) -> None:
    """It keeps the PATH of its base; a label names the base."""
    (load,) = json.loads(engine("image", "inspect", image))
    config = load["Config"]
    variables = dict(assignment.split("=", 1) for assignment in config["Env"])

    assert "65534:65534" == config["User"]
    assert ["gpugate"] == config["Entrypoint"]
    assert ["serve"] == config["Cmd"]
    assert {"8443/tcp": {}} == config["ExposedPorts"]
    assert variables.pop("PATH").startswith(f"/{_HOME}/bin:")
    assert {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "MALLOC_TRIM_THRESHOLD_": "131072",
    } == variables
    assert f"python:{base.tag()}" == config["Labels"]["org.opencontainers.image.base.name"]
    assert not config.get("Volumes")


def test_the_image_adds_one_folder_to_its_base(engine: Engine, image: str) -> None:
    """Build tools, caches and sources are not included. It has the size in the page."""
    before = f"localhost/python:{base.tag()}"
    changed = [line.split(" ", 1)[1] for line in engine("diff", image, before).splitlines()]
    outside = [path for path in changed if not path.startswith(f"/{_HOME}")]

    assert len(changed) > 1000
    assert ["/opt"] == outside
    sizes = [
        json.loads(engine("image", "inspect", reference))[0]["Size"] / 1e6 for reference in (image, before)
    ]
    match = re.search(r"It adds (\d+) MB", text_of("docs/install.md"))
    assert match
    assert sizes[0] - sizes[1] == pytest.approx(float(match[1]), rel=0.1)


def test_the_image_holds_the_locked_packages_in_their_versions_and_no_other(python: dict[str, Any]) -> None:
    """No pip, and nothing of what builds the wheel."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    pins = map(Requirement, re.findall(r"^(\S+==[^\\\n]+)", text, re.MULTILINE))
    locked = {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(python["markers"])
    }
    installed = {canonicalize_name(name): version for name, version in python["found"].items()}

    assert locked | {"gpugate": RELEASE} == installed


def test_only_root_may_change_files_of_the_image(root: Path) -> None:
    """And no file gives root rights."""
    files = [(path, path.lstat()) for path in (root / _HOME).rglob("*")]

    assert len(files) > 1000
    assert not [path for path, status in files if status.st_uid or status.st_gid]
    assert not [path for path, status in files if not path.is_symlink() and status.st_mode & 0o6022]


def test_every_module_of_the_image_is_compiled_for_its_python(python: dict[str, Any], root: Path) -> None:
    """Others would be compiled at each start, because the root file system is read-only."""
    modules = list((root / python["library"].lstrip("/")).rglob("*.py"))

    def stale(module: Path) -> bool:
        compiled = module.parent / "__pycache__" / f"{module.stem}.{python['tag']}.pyc"
        if not compiled.is_file():
            return True
        with compiled.open("rb") as file:  # https://peps.python.org/pep-0552/
            flags, changed = struct.unpack("<4xII4x", file.read(16))
        return bool(flags or changed != int(module.stat().st_mtime))

    assert len(modules) > 1000
    assert not [module for module in modules if stale(module)]


def test_the_command_line_works_in_the_image(engine: Engine, image: str) -> None:
    """With the built-in rules on the examples."""
    examples = [f"--volume={ROOT}/docs/examples:/examples:ro"]
    printed = run(engine, image, "preview", "-f", "/examples/patched.yaml", options=examples)

    assert f"gpugate {RELEASE}\n" == run(engine, image, "--version")
    assert "1 object: 1 patched" in printed
    assert f"{VCUDA_CORE}: '20'" in printed


class _Container(ServeProcess):
    """gpugate as a container; it ends like a process."""

    def __init__(self, argv: Sequence[str], port: int, log: Path) -> None:
        super().__init__(port, (), log)
        self._argv = argv


def _account(installation: Installation, folder: Path) -> Path:
    """Write the files that a kubelet mounts into gpugate's pod."""
    folder.mkdir()
    files = {
        "token": installation.cluster.kubectl("create", "token", "gpugate", "-n", "gpugate").stdout.strip(),
        "ca.crt": installation.cluster.ca_pem.decode(),
        "namespace": "gpugate",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder


def test_the_image_serves_a_cluster(
    engine: Engine, image: str, installation: Installation, tmp_path: Path
) -> None:
    """With the arguments and limits of the Deployment, which mounts no writable volume."""
    _, container = workload(_DEPLOYMENT)
    assert not {"volumeMounts", "env"} & container.keys()
    host, _, api = installation.cluster.url.removeprefix("https://").partition(":")
    argv = [
        *(str(engine.docker), "run", "--rm", *confined()),
        f"--volume={_account(installation, tmp_path / 'account')}:{_ACCOUNT}:ro",
        *(f"--env=KUBERNETES_SERVICE_HOST={host}", f"--env=KUBERNETES_SERVICE_PORT={api}"),
        *(image, *container["args"]),
        # By URL, for there is no Service; and at its port.
        *("--name=127.0.0.1", f"--port={installation.port}"),
    ]
    log = tmp_path / "serve.log"
    server = _Container(argv, installation.port, log)

    server.start()
    try:
        eventually(server.ready)
        eventually(installation.in_force)
        message = installation.refusal(pod("wrong", {VCUDA_MEMORY: "8", VCUDA_CORE: "150"}))
    finally:
        status = server.terminate()

    assert "Pod denied by gpugate" in message
    assert 0 == status, log.read_text("utf-8")
    assert "Read-only" not in log.read_text("utf-8")
    assert "Traceback" not in log.read_text("utf-8")


@pytest.mark.usefixtures("image")  # whose steps need not be done again
def test_the_label_names_a_base_by_its_digest(engine: Engine) -> None:
    """As docs/security.md describes for a release; the base is in the registry then."""
    name = f"{engine.registry}/python:{base.tag()}"
    engine("push", "--quiet", f"localhost/python:{base.tag()}", name)
    engine("pull", "--quiet", name)
    digest = json.loads(engine("image", "inspect", name))[0]["Digest"]

    typed(engine, f"make --directory={ROOT} image BASE={name}@{digest}")

    (made,) = json.loads(engine("image", "inspect", "gpugate"))
    assert f"{name}@{digest}" == made["Config"]["Labels"]["org.opencontainers.image.base.name"]
