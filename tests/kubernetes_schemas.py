"""The fields of Kubernetes that our files use, from the published definitions. Any other field is refused."""


def fields(required=(), **properties):
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


def each(item):
    return {"type": "array", "items": item}


TEXT, NUMBER, SWITCH, ANY = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "object"}
CONTAINER = fields(
    ["name"],
    name=TEXT,
    image=TEXT,
    command=each(TEXT),
    args=each(TEXT),
    env=each(fields(["name"], name=TEXT, value=TEXT)),
    ports=each(fields(["containerPort"], containerPort=NUMBER)),
    resources=fields(limits=ANY, requests=ANY),
    volumeMounts=each(fields(["name", "mountPath"], name=TEXT, mountPath=TEXT)),
)
VOLUME = fields(
    ["name"],
    name=TEXT,
    persistentVolumeClaim=fields(["claimName"], claimName=TEXT),
    emptyDir=fields(medium=TEXT, sizeLimit=TEXT),
)
RESTART = {"enum": ["Never", "OnFailure", "Always"]}
POD = fields(spec=fields(containers=each(CONTAINER), volumes=each(VOLUME), restartPolicy=RESTART))
METADATA = fields(["name"], name=TEXT)
# https://github.com/kubernetes-sigs/jobset/blob/main/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
# at 08dfbdf (2026-08-18)
JOB = fields(spec=fields(parallelism=NUMBER, completions=NUMBER, backoffLimit=NUMBER, template=POD))
JOBSET = fields(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=METADATA,
    spec=fields(
        network=fields(enableDNSHostnames=SWITCH, subdomain=TEXT, publishNotReadyAddresses=SWITCH),
        failurePolicy=fields(
            maxRestarts=NUMBER, restartStrategy={"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]}
        ),
        replicatedJobs=each(fields(["name", "template"], name=TEXT, replicas=NUMBER, template=JOB)),
    ),
)
# https://github.com/kubeflow/trainer/blob/v2.3.0/manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml
PATCHED_JOB = fields(spec=fields(template=POD))
TRAINJOB = fields(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "TrainJob"},
    metadata=METADATA,
    spec=fields(
        ["runtimeRef"],
        runtimeRef=fields(["name"], name=TEXT, kind=TEXT, apiGroup=TEXT),
        activeDeadlineSeconds=NUMBER,
        suspend=SWITCH,
        trainer=fields(
            image=TEXT,
            command=each(TEXT),
            args=each(TEXT),
            env=each(ANY),
            numNodes=NUMBER,
            numProcPerNode=NUMBER,
            resourcesPerNode=fields(limits=ANY, requests=ANY),
        ),
        runtimePatches=each(
            fields(
                ["manager"],
                manager=TEXT,
                trainingRuntimeSpec=fields(
                    template=fields(spec=fields(replicatedJobs=each(fields(["name"], name=TEXT, template=PATCHED_JOB))))
                ),
            )
        ),
    ),
)
