"""Google's own client runs a life of instances against the stand-in: client.py ENDPOINT PROJECT.

It is strict about the types of what it reads. Prints a line for each step; whatever it does not expect ends it.
"""
import sys
import uuid

from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import Conflict, NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

ENDPOINT, PROJECT = sys.argv[1:]
ZONE = "europe-west1-b"
WHERE = {"project": PROJECT, "zone": ZONE}
given = {"credentials": AnonymousCredentials(), "client_options": ClientOptions(api_endpoint=ENDPOINT)}
instances = compute_v1.InstancesClient(**given)
operations = compute_v1.ZoneOperationsClient(**given)
regions = compute_v1.RegionsClient(**given)


def wanted(name):
    return compute_v1.Instance(
        name=name,
        machine_type=f"zones/{ZONE}/machineTypes/e2-small",
        labels={"proxy-operator-managed": "true"},
        tags=compute_v1.Tags(items=["proxy-operator"]),
        disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image="projects/p/global/images/family/f", disk_size_gb=10))],
        network_interfaces=[compute_v1.NetworkInterface(network="global/networks/default", access_configs=[
            compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")])],
        metadata=compute_v1.Metadata(items=[compute_v1.Items(key="user-data", value="#cloud-config\n")]),
    )


def insert(name, request_id=None):
    request = compute_v1.InsertInstanceRequest(instance_resource=wanted(name), request_id=request_id, **WHERE)
    return instances.insert_unary(request=request)


def done(operation):
    """Not `.result()`: that polls Google's own address, whatever the endpoint."""
    for _ in range(5):
        read = operations.get(operation=operation.name, **WHERE)
        if read.status == compute_v1.Operation.Status.DONE:
            return read
    raise AssertionError(f"{operation.name} does not end")


def refused(error, call, *args):
    try:
        call(*args)
    except error as refusal:
        return str(refusal)
    raise AssertionError(f"{error.__name__} was expected")


same = str(uuid.uuid4())
first = insert("vm-1", same)
assert insert("vm-1", same).name == first.name, "a repeat with the same requestId is the same operation"
assert done(first).progress == 100
vm = instances.get(instance="vm-1", **WHERE)
assert vm.status == "RUNNING" and vm.network_interfaces[0].access_configs[0].nat_i_p and vm.network_interfaces[0].network_i_p, vm
assert vm.labels["proxy-operator-managed"] == "true" and vm.creation_timestamp and vm.id > 0
print("made, running, with addresses:", vm.network_interfaces[0].access_configs[0].nat_i_p)
print("a second of the name:", refused(Conflict, insert, "vm-1"))

for number in (2, 3):
    done(insert(f"vm-{number}"))
pages = instances.aggregated_list(request=compute_v1.AggregatedListInstancesRequest(
    project=PROJECT, filter="labels.proxy-operator-managed = true", max_results=2))
listed = sorted(vm.name for _, scope in pages for vm in scope.instances)
assert listed == ["vm-1", "vm-2", "vm-3"], listed
print("listed over pages:", listed)

found = list(operations.list(request=compute_v1.ListZoneOperationsRequest(
    filter=f"targetLink eq .*/zones/{ZONE}/instances/vm-1", order_by="creationTimestamp desc", max_results=1, **WHERE)))
assert found[0].operation_type == "insert" and found[0].target_link.endswith("/instances/vm-1"), found
print("the operation by its target:", found[0].name)

region = regions.get(project=PROJECT, region="europe-west1")
print("quotas:", [(quota.metric, quota.usage, quota.limit) for quota in region.quotas])

for number in (1, 2, 3):
    done(instances.delete_unary(request=compute_v1.DeleteInstanceRequest(instance=f"vm-{number}", request_id=str(uuid.uuid4()), **WHERE)))
print("deleted:", refused(NotFound, lambda: instances.get(instance="vm-1", **WHERE)))
