#!/usr/bin/env bash
# Startup script of a TPU VM: installs the project and trains a run that lives in a bucket. A new VM
# with the same script and metadata resumes where the last one was preempted. See docs/tpu.md.
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
manifest=$(gcloud storage cat "$bucket/$run/manifest.json") || manifest=
if grep -q '"checkpoints/' <<< "$manifest"; then
    begin=(--resume "$bucket/$run")
else
    # A run without a checkpoint cannot be resumed.
    now=$(date +%s)
    copy=$folder/ppo_mask/runs/gs/${bucket#gs://}/$run
    [ ! -d "$copy" ] || mv "$copy" "$copy.$now"
    [ -z "$manifest" ] || gcloud storage mv "$bucket/$run" "$bucket/$run.$now"
    begin=(--checkpoint-dir "$bucket" --run-name "$run")
fi

export JAX_COMPILATION_CACHE_DIR=$folder/compiled
.venv/bin/python source/examples/train_hackmatrix.py "${begin[@]}" "${flags[@]}" &
trainer=$!
# On SIGTERM the trainer saves, copies the run to the bucket, and ends.
trap 'kill -TERM "$trainer" 2> /dev/null' TERM
while kill -0 "$trainer" 2> /dev/null; do
    sleep "${PPO_MASK_COPY_SECONDS:-600}" &
    sleeper=$!
    wait -n "$trainer" "$sleeper" || true
    save
done
kill "$sleeper" 2> /dev/null || true
wait "$trainer"
