"""The module of Google Cloud: what its templates come to, the rights of its identities, the function that it packages,
and what `terraform destroy` does besides."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloud_dispatch.cloudinit import schema
from cloud_dispatch.config.load import load
from cloud_dispatch.config.source import Embedded
from cloud_dispatch.domain.ids import BatchId, PoolName
from cloud_dispatch.domain.labels import of_tags
from cloud_dispatch.domain.tags import VmTags
from cloud_dispatch.provider.registry import plugin
from cloud_dispatch_gcp import policy
from cloud_dispatch_gcp.settings import GcpSettings
from tests.fakes.faults import Fault, FaultKind
from tests.fakes.gce import FakeGce
from tests.fakes.gce.asking import IMAGE, Asker
from tests.fakes.gce.reaper import FunctionMetadata
from tests.fakes.gce.session import Session
from tests.fakes.gce.settings import PROJECT, ZONE
from tests.providers.gcp.launching import everything
from tests.terraform import graph, hcl
from tests.terraform.rendering import MODULES, rendered
from tests.terraform.test_control import user_data
from tools import terraform_policies

GCP = MODULES / "gcp"
CORE = MODULES.parents[1] / "cloud_dispatch"
DOCS = MODULES.parents[1] / "docs"
PREFIX = "lab--"
SUBNETS = {"us-central1": f"projects/{PROJECT}/regions/us-central1/subnetworks/workers"}
WORKER = f"cd-lab-worker@{PROJECT}.iam.gserviceaccount.com"
SIGN = "gs://cloud-dispatch-lab-0a1b2c3d/reaper/sign"
STORE = {"address": "10.1.2.3", "secret": f"projects/{PROJECT}/secrets/cloud-dispatch-lab-database"}
TERRAFORM = shutil.which("terraform")


def written(public_vms: str = "false", store: dict[str, str] | None = None) -> str:
    """The control VM's configuration, as the module writes it."""
    pools = next(hcl.unquoted(one.body["default"]) for one in hcl.load(GCP).of("variable") if one.labels == ("pools",))
    return rendered(GCP / "templates" / "config.toml.tftpl", {
        "deployment": "lab", "port": 7717, "host": "10.48.0.9", "names": json.dumps(["10.48.0.9"]),
        "store": rendered(GCP / "templates" / "store.toml.tftpl", store) if store else "",
        "copies": "gs://cloud-dispatch-lab-0a1b2c3d/copies", "copied": "keys" if store else "everything",
        "profile": section(public_vms), "pools": pools,
    })  # fmt: skip


def settings(public_vms: str = "false", store: dict[str, str] | None = None) -> dict[str, Any]:
    """What it says."""
    return tomllib.loads(written(public_vms, store))


def section(public_vms: str = "false", credentials: str = "") -> str:
    """What a dispatcher is told of the module, wherever it is."""
    return rendered(GCP / "templates" / "profile.toml.tftpl", {
        "credentials": credentials, "project": PROJECT, "regions": json.dumps(list(SUBNETS)),
        "instance_types": json.dumps(["n2-standard-*"]),
        "subnets": ", ".join(f"{region} = {json.dumps(one)}" for region, one in SUBNETS.items()),
        "service_account": WORKER, "name_prefix": PREFIX, "public_vms": public_vms, "profile": 'root_size = "50GiB"',
        "reaper_period": "60s", "reaper_sign": SIGN,
        "max_instances": 20, "day_limit": 50, "month_limit": 500,
    })  # fmt: skip


def profile(public_vms: str = "false") -> GcpSettings:
    found: GcpSettings = load(Embedded(settings(public_vms)), plugin).profiles["gcp"].settings
    return found


def permissions(name: str) -> set[str]:
    """Of a custom role that the module makes."""
    return set(json.loads((GCP / "policies" / f"{name}.json").read_text())["includedPermissions"])


def test_the_disk_with_the_state_is_not_replaced_for_another_zone() -> None:
    """It stays where it is, and the plan of a control VM in another zone is refused before anything is destroyed."""
    made = {one.address: one.body for one in hcl.load(GCP).of("resource")}
    assert [str(one) for one in made["google_compute_disk.state"]["lifecycle"][0]["ignore_changes"]] == ["zone"]
    asked = [one["condition"] for one in made["google_compute_instance.control"]["lifecycle"][0]["precondition"]]
    assert "${google_compute_disk.state[0].zone == local.zone}" in asked


def test_the_control_vms_configuration_is_good() -> None:
    """With the pools of who says nothing about them."""
    config = load(Embedded(settings()), plugin)
    assert [(one.key.scope, one.window, one.limit) for one in config.budgets()] == [
        ("profile", "month", 500_000_000), ("profile", "day", 50_000_000),
    ]  # fmt: skip
    assert config.pools()
    assert profile().subnets == SUBNETS
    assert (profile().reaper_sign, profile().reaper_period) == (SIGN, 60_000)
    assert (config.backup.into, config.backup.what) == ("gs://cloud-dispatch-lab-0a1b2c3d/copies", "everything")


def test_a_managed_databases_password_is_named_and_not_told() -> None:
    """Its certificate is where the module puts it, and the password where only the dispatcher's account reads it."""
    store = load(Embedded(settings(store=STORE)), plugin).store
    url = store.url.get_secret_value()
    assert url.startswith("postgresql://dispatcher@10.1.2.3/dispatcher?sslmode=verify-ca")
    assert store.password.get_secret_value() == f"gcp-secret:{STORE['secret']}/versions/latest"
    assert "sslrootcert=/etc/cloud-dispatch/database.pem" in url
    assert '"database.pem" =>' in (GCP / "database.tf").read_text()


def test_cloud_init_takes_what_the_control_vm_boots_with() -> None:
    """With all that the module ever gives it, in the form that it is sent: packed, in base64, as cloud-init is told."""
    files = {"config.toml": written("true", STORE), "database.pem": "-----BEGIN CERTIFICATE-----\n" + "MIIB" * 400}
    told = user_data(files, "cloud-dispatch[bucket,gcp,postgres]")
    program = schema.program()
    assert program, "there is no cloud-init: `make setup` brings it, and says why if it can't"
    assert len(base64.b64encode(gzip.compress(told.encode()))) < 8 * 1024
    (control,) = [one for one in hcl.load(GCP).of("resource") if one.address == "google_compute_instance.control"]
    metadata = {name.strip('"'): value for name, value in hcl.items(control.body["metadata"])}
    assert metadata["user-data"] == "${base64gzip(local.user_data)}"
    assert hcl.unquoted(metadata["user-data-encoding"]) == "base64"
    assert schema.complaint(program, told) == ""


@pytest.mark.parametrize("public", [False, True])
def test_the_dispatcher_may_do_what_its_driver_says_and_no_more(public: bool) -> None:
    """The role that `iam-policy` prints for that configuration: the module adds the right to addresses where VMs have
    one of their own."""
    assert terraform_policies.files() == {path: path.read_text() for path in terraform_policies.files()}
    more = re.findall(r'var\.public_vms \? \["([\w.]+)"\]', (GCP / "identity.tf").read_text())
    assert permissions("dispatcher") | set(more if public else ()) == set(
        policy.permissions(profile("true" if public else "false"))
    )


#: Types of Compute Engine whose type and name IAM's conditions see; of any other a clause speaks in vain, and all of
#: them are admitted ("Resource attributes for IAM Conditions").
SEEN = frozenset({
    "BackendService", "Disk", "Firewall", "ForwardingRule", "GlobalForwardingRule", "Image", "Instance",
    "InstanceTemplate", "Snapshot", "TargetHttpProxy", "TargetHttpsProxy", "TargetSslProxy", "TargetTcpProxy",
})  # fmt: skip


class Condition:
    """What the condition of the bindings says of a resource, read as IAM reads it: `&&` of `type != T || name`."""

    def __init__(self, prefix: str) -> None:
        text = rendered(GCP / "policies" / "only-own.cel.tftpl", {"prefix": prefix})
        clause = re.compile(
            r'\(resource\.type != "compute\.googleapis\.com/(\w+)" \|\| '
            r'resource\.name\.extract\("/(\w+)/\{name\}"\)\.startsWith\("([\w-]+)"\)\)'
        )
        self._clauses = clause.findall(text)
        assert clause.sub("()", text).split() == ["()", "&&", "()"]
        assert all(kind in SEEN for kind, _, _ in self._clauses)

    def admits(self, kind: str, path: str) -> bool:
        return all(
            kind != wanted or path.partition(f"/{folder}/")[2].startswith(prefix)
            for wanted, folder, prefix in self._clauses
        )


#: By parameter of the path: the type of the resource that the right is asked of, and its folder.
KINDS = {"instance": ("Instance", "instances"), "disk": ("Disk", "disks"), "address": ("Address", "addresses")}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[tuple[str, str]]]:
    """By right, of which resources it was asked: type and path; ("", "") for the project."""
    found: dict[str, set[tuple[str, str]]] = {}
    permit = Session.permit

    def noted(session: Session, *rights: str) -> None:
        named = {name: session.params[name] for name in KINDS if name in session.params}
        if session.method.name == "instances.insert":
            named = {"instance": session.body["name"], "disk": session.body["name"]}
        for right in rights:
            of = {KINDS[one][0]: f"projects/p/x/y/{KINDS[one][1]}/{name}" for one, name in named.items()} or {"": ""}
            found.setdefault(right, set()).update(of.items())
        permit(session, *rights)

    monkeypatch.setattr(Session, "permit", noted)
    return found


def refused(asked: dict[str, set[tuple[str, str]]]) -> set[tuple[str, str]]:
    """What was asked of resources that the condition does not admit."""
    condition = Condition(PREFIX)
    return {of for several in asked.values() for of in several if not condition.admits(*of)}


async def test_the_dispatchers_calls_are_allowed_by_its_role_and_its_condition(
    asked: dict[str, set[tuple[str, str]]], tmp_path: Path
) -> None:
    """By all that a driver ever does with the module's own profile; and no right is there that no call uses."""
    with FakeGce() as fake:
        there = {"endpoint_url": fake.url, "credentials_file": fake.write_key(tmp_path)}
        said = profile().model_copy(update={**there, "consistency": 0, "operation_poll": 100})
        await everything(fake, said, tmp_path)
    held = permissions("dispatcher")
    elsewhere = {"iam.serviceAccounts.actAs", "compute.images.getFromFamily", "storage.objects.get"}
    assert asked.keys() - held == elsewhere
    assert held - asked.keys() == {"compute.disks.setLabels"}
    assert refused(asked) == set()


def labelled(fake: FakeGce, name: str, ends_ms: int) -> None:
    worn = of_tags(VmTags("lab", "store", PoolName("p"), BatchId("b"), 5, ends_ms).encode())
    boot = {"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": IMAGE, "labels": worn}}
    ask = Asker(fake)
    begun = ask.insert(name, labels=worn, disks=[boot])
    assert ask("POST", f"zones/{ZONE}/operations/{begun['name']}/wait")[0] == 200


class Function(threading.Thread):
    """The reaper's function as it is called: over HTTP, by whoever has a token; `bodies` is what came."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        spec = importlib.util.spec_from_file_location("main", GCP / "function" / "main.py")
        assert spec is not None
        assert spec.loader is not None
        main = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(main)
        self.bodies: list[Any] = []
        said = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                said.bodies.append((self.headers["Authorization"], body))
                self.get_json = lambda silent: body
                text, status, headers = main.reap(self)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def run(self) -> None:
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.join(10)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGce]:
    with FakeGce() as made, FunctionMetadata(made) as metadata:
        for name, value in {
            "DEPLOYMENT": "lab", "PROJECT": PROJECT, "COMPUTE_ENDPOINT": made.url, "TIMEOUT_S": "60",
            "GCE_METADATA_HOST": metadata.host,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("cloud_dispatch.reapers.rounds.PAUSE_S", 0.02)
        yield made


@pytest.fixture
def function(fake: FakeGce) -> Iterator[Function]:
    made = Function()
    made.start()
    yield made
    made.close()


def call(function: Function, text: str) -> None:
    command = ["curl", "--silent", "--fail", "--data", text, function.url]
    subprocess.run(command, check=True, capture_output=True)


def test_the_reapers_calls_are_allowed_by_its_role_and_its_condition(
    asked: dict[str, set[tuple[str, str]]], fake: FakeGce, function: Function
) -> None:
    """By a round and by the end of a deployment whose VM left its disk and an address; and each right is used."""
    labelled(fake, f"{PREFIX}b1-0", 5), labelled(fake, f"{PREFIX}b1-1", fake.clock.now() + 3_600_000)
    asked.clear()
    call(function, "{}")
    assert set(asked) == {"compute.instances.list", "compute.instances.delete"}
    fake.add_faults(Fault(FaultKind.LEFTOVER, code="", times=1))
    call(function, '{"everything": true}')
    assert set(asked) == permissions("reaper")
    assert refused(asked) == set()
    assert (fake.all_instances(), fake.leftovers()) == ([], [])


def test_names_of_others_are_not_admitted() -> None:
    """Of whom a deployment's name begins like ours, and of the control VM."""
    condition = Condition(PREFIX)
    for name in ("lab-two--b1-0", "cloud-dispatch-lab-control", "b1-0", "lab"):
        assert not condition.admits("Instance", f"projects/p/zones/z/instances/{name}")
    assert condition.admits("Instance", "projects/p/zones/z/instances/lab--b1-0")
    assert condition.admits("", "projects/p")
    # It is no wish of ours: the page of rights says so.
    assert condition.admits("Address", "projects/p/regions/r/addresses/of-others")
    assert "could delete every reserved address" in " ".join((DOCS / "how-to" / "deploy-gcp.md").read_text().split())
    named = next(one for one in hcl.load(GCP).of("variable") if one.labels == ("deployment",))
    (said,) = re.findall(r'regex\("([^"]+)"', str(named.body["validation"]))
    assert [bool(re.fullmatch(said, one)) for one in ("lab", "lab-2", "lab--two", "lab-", "2lab")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_vms_and_what_only_calls_may_end_nothing() -> None:
    """Two custom roles have rights to Compute Engine, each given to one account; no basic role is given to anybody. The
    third is for signs of life."""
    configuration = hcl.load(GCP)
    given = {one.labels: str(one.body["role"]) + str(one.body["member"]) for one in configuration.of("resource")
             if "iam_member" in one.labels[0]}  # fmt: skip
    custom = {labels[1]: text for labels, text in given.items() if "custom_role" in text}
    assert {name: re.findall(r"service_account\.(\w+)", text) for name, text in custom.items()} == {
        "dispatcher": ["control"], "reaper": ["reaper"], "leaves_sign": ["reaper"],
    }  # fmt: skip
    assert permissions("sign") == {"storage.objects.get", "storage.objects.update"}
    plain = {role for text in given.values() for role in re.findall(r"roles/[\w.]+", text)}
    assert not any(role.startswith(("roles/compute", "roles/owner", "roles/editor")) for role in plain)
    worker = [one for one in configuration.of("resource") if "service_account.worker" in str(one.body.get("member"))]
    assert [one.address for one in worker] == ["google_storage_bucket_iam_member.worker"]
    assert "/artifacts/" in str(worker[0].body["condition"])


def test_the_reaper_leaves_its_sign_where_the_dispatcher_looks() -> None:
    """The metadata of one object: the function is told of it, its account may change those and nothing else in the
    bucket, the dispatcher's may read it. What stands there is nobody's to put back."""
    made = {one.address: one.body for one in hcl.load(GCP).of("resource")}
    sign = made["google_storage_bucket_object.sign"]
    assert hcl.unquoted(sign["name"]) == SIGN.split("/", 3)[3]
    assert [str(one) for one in sign["lifecycle"][0]["ignore_changes"]] == ["metadata"]
    (service,) = made["google_cloudfunctions2_function.reaper"]["service_config"]
    told = {name.strip('"'): value for name, value in hcl.items(service["environment_variables"])}
    assert told["SIGN"] == "${local.reaper_sign}"
    for name, role in (("leaves_sign", "custom_role.sign.id"), ("hears_reaper", "roles/storage.objectViewer")):
        given = made[f"google_storage_bucket_iam_member.{name}"]
        assert role in str(given["role"])
        assert "resource.name ==" in str(given["condition"])
        assert "google_storage_bucket_object.sign.name" in str(given["condition"])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reaper's function, of the files that the module names."""
    (names,) = (one.body["reaper_files"] for one in hcl.load(GCP).of("locals") if "reaper_files" in one.body)
    path = tmp_path_factory.mktemp("reaper") / "reaper.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in map(hcl.unquoted, names):
            archive.write(CORE / name, f"cloud_dispatch/{name}")
        archive.write(GCP / "function" / "main.py", "main.py")
    return path


def test_the_function_runs_from_its_package_alone(package: Path) -> None:
    """It has all that its root imports, and nothing else; no other package of ours or of anybody is needed."""
    (entry,) = re.findall(r'entry_point\s+= "(\w+)"', (GCP / "reaper.tf").read_text())
    code = (
        f"import sys; sys.path[:] = [{str(package)!r}, *[p for p in sys.path if 'site-packages' not in p]]\n"
        f"import main; assert callable(main.{entry})\n"
        "print(*sorted(n for n in sys.modules if n.partition('.')[0] == 'cloud_dispatch'))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(package) as archive:
        names = {re.sub(r"(/__init__)?\.py$", "", name).replace("/", ".") for name in archive.namelist()}
    assert set(done.stdout.split()) == names - {"main"}


def test_what_ends_everything_comes_between_the_control_vm_and_what_vms_use() -> None:
    """Terraform destroys in the other order than it makes: nobody launches any more, and VMs still have their network,
    their account, and the reaper its rights and its address."""
    needs = graph.needs(hcl.load(GCP))
    end = "terraform_data.end_everything"
    before = {one for one, several in needs.items() if end in several}
    assert {"google_compute_instance.control", "google_compute_disk_resource_policy_attachment.state"} <= before
    assert needs[end] >= {
        "google_cloudfunctions2_function.reaper", "google_project_iam_custom_role.reaper",
        "google_project_iam_member.reaper", "google_cloud_run_v2_service_iam_member.calls_reaper",
        "google_service_account.reaper", "google_service_account.worker", "google_compute_network.own",
        "google_compute_subnetwork.own", "google_compute_router_nat.own",
    }  # fmt: skip
    assert not before & needs[end]


GCLOUD = """#!/bin/sh
echo "$*" >> "$TOLD"
case "$*" in
  *--audiences=*) exit 1;;
  "auth print-identity-token") echo a-token;;
  *"snapshots list"*) printf 'one\\ntwo\\n';;
esac
"""


@pytest.mark.skipif(TERRAFORM is None, reason="terraform is not on this machine")
@pytest.mark.parametrize("kept", [False, True], ids=["snapshots go", "snapshots stay"])
def test_destroy_ends_everything_before_it_goes_on(
    fake: FakeGce, function: Function, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Terraform itself, with the resource as the module has it; gcloud is one that tells what it was asked. While a VM
    does not end, the resource stays, and with it all that it needs."""
    whole = (GCP / "reaper.tf").read_text()
    own = whole[whole.index('resource "terraform_data" "end_everything"') :]
    own = re.sub(r"\n  depends_on = \[.*?\n  \]\n", "\n", own, flags=re.DOTALL)
    for old, new in {
        "google_cloudfunctions2_function.reaper.service_config[0].uri": json.dumps(function.url),
        "local.project": json.dumps(PROJECT), "var.keep_snapshots": json.dumps(kept), "${var.deployment}": "lab",
    }.items():  # fmt: skip
        assert old in own
        own = own.replace(old, new)
    (tmp_path / "main.tf").write_text(own)
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text(GCLOUD)
    gcloud.chmod(0o755)
    told = tmp_path / "told"
    told.write_text("")
    environment = {**os.environ, "PATH": f"{gcloud.parent}:{os.environ['PATH']}", "TOLD": str(told)}
    (tmp_path / "none.rc").write_text("")

    def terraform(*words: str) -> int:
        done = subprocess.run(
            [str(TERRAFORM), f"-chdir={tmp_path}", *words], capture_output=True, text=True, check=False,
            env={**environment, "TF_CLI_CONFIG_FILE": str(tmp_path / "none.rc")},
        )  # fmt: skip
        return done.returncode

    assert terraform("init") == terraform("apply", "-auto-approve") == 0
    assert function.bodies == []
    labelled(fake, f"{PREFIX}b1-0", fake.clock.now() + 3_600_000)
    monkeypatch.setenv("TIMEOUT_S", "0")
    fake.denied.add("compute.instances.delete")
    assert terraform("destroy", "-auto-approve") != 0
    assert "snapshots" not in told.read_text()
    monkeypatch.setenv("TIMEOUT_S", "60")
    fake.denied.clear()
    assert terraform("destroy", "-auto-approve") == 0
    assert (fake.all_instances(), fake.leftovers()) == ([], [])
    assert function.bodies == [("Bearer a-token", {"everything": True})] * 2
    asked = [line for line in told.read_text().splitlines() if "snapshots" in line]
    assert asked == ([] if kept else [
        f"compute snapshots list --project={PROJECT} --filter=labels.cloud-dispatch-part-of=lab --format=value(name)",
        f"compute snapshots delete one two --project={PROJECT} --quiet",
    ])  # fmt: skip
