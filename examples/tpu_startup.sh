#!/usr/bin/env bash
# Startup script of a TPU VM: installs the project and trains a run that is stored in a bucket. A new
# VM with the same script and metadata resumes where the last VM was preempted. On a slice of several
# hosts, every host runs the script, and the hosts train one run together. See
# docs/running_elsewhere.md.
#
# The VM's metadata:
#   bucket    folder of the runs, such as gs://my-bucket/runs
#   source    the address that git clones the project from
#   run-name  the run's name
#   flags     flags of `hackmatrix train` (separated by spaces), the same for every VM
set -euo pipefail

metadata() {
    curl -sf -H "Metadata-Flavor: Google" \
        "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

# Saves the compilation cache for the next VM. The trainer copies the run itself.
save() {
    gcloud storage rsync --quiet -r compiled "$bucket/compiled" ||
        echo "could not save to $bucket; will try again"
}

bucket=$(metadata bucket)
run=$(metadata run-name)
read -ra flags < <(metadata flags && echo)
folder=${PPO_MASK_FOLDER:-/opt/ppo-mask}
mkdir -p "$folder/compiled"
cd "$folder"

if [ ! -e installed ]; then
    rm -rf source .venv
    git clone --depth 1 "$(metadata source)" source
    # The VM's own Python may be older than 3.11.
    python3 -m pip install --quiet uv
    python3 -m uv venv --python 3.12 .venv
    python3 -m uv pip install --quiet --python .venv/bin/python -e 'source[tpu,gcs]'
    touch installed
fi

gcloud storage rsync --quiet -r "$bucket/compiled" compiled || echo "nothing compiled yet"
export XDG_CACHE_HOME=$folder # Holds the local copies of the bucket's runs.
export JAX_COMPILATION_CACHE_DIR=$folder/compiled
worker=$(metadata agent-worker-number) || worker=0

# Chooses whether the trainer begins or resumes the run.
choose() {
    if gcloud storage ls "$bucket/$run/checkpoints/*/description.json" > /dev/null 2>&1; then
        begin=(--resume "$bucket/$run")
        return
    fi
    begin=(--checkpoint-dir "$bucket" --run-name "$run")
    [ "$worker" = 0 ] || return 0
    # A run without a checkpoint cannot be resumed.
    local now copy
    now=$(date +%s)
    copy=$folder/ppo_mask/runs/gs/${bucket#gs://}/$run
    [ ! -d "$copy" ] || mv "$copy" "$copy.$now"
    if gcloud storage ls "$bucket/$run/" > /dev/null 2>&1; then
        gcloud storage mv "$bucket/$run" "$bucket/$run.$now"
    fi
}

# On SIGTERM the trainer saves, copies the run to the bucket, and ends, and so do all trainers.
trainer='' stopped=''
trap 'stopped=1; [ -z "$trainer" ] || kill -TERM "$trainer" 2> /dev/null' TERM

# Trains until the trainer ends; its exit code is in $code.
train() {
    .venv/bin/python source/examples/train_hackmatrix.py "${begin[@]}" "${flags[@]}" &
    trainer=$!
    while kill -0 "$trainer" 2> /dev/null; do
        sleep "${PPO_MASK_COPY_SECONDS:-600}" &
        sleeper=$!
        wait -n "$trainer" "$sleeper" || true
        save
    done
    kill "$sleeper" 2> /dev/null || true
    code=0
    wait "$trainer" || code=$?
}

# If one host stops or is lost, the trainers of the other hosts end too, with code 143 (saved), or 1
# or 134 (the host is lost). These trainers start again and wait until the host has booted. Code 0
# ends the run. Code 2 is a refusal, which a retry would only repeat.
code=143
for _ in {1..20}; do
    choose
    [ -z "$stopped" ] || break
    train
    [ -z "$stopped" ] || break
    case $code in 0 | 2) break ;; esac
    metadata worker-network-endpoints 2> /dev/null | grep -q , || break # It is the only host.
    sleep "${PPO_MASK_RETRY_SECONDS:-30}"
done
exit "$code"
