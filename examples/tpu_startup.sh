#!/usr/bin/env bash
# Startup script of a TPU VM: installs the project, trains, and copies the run to a bucket. A new VM
# with the same script and metadata goes on where the last one was preempted. See docs/tpu.md.
#
# The VM's metadata say what to do:
#   bucket    where the run is kept, such as gs://my-bucket/ppo-mask
#   source    what git can clone the project from
#   run-name  the run's name
#   flags     flags of examples/train_hackmatrix.py (separated by spaces), the same for every VM
set -euo pipefail
shopt -s extglob nullglob

metadata() {
    curl -sf -H "Metadata-Flavor: Google" \
        "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

# Puts the run and what was compiled into the bucket. The run is one object, which is there as a
# whole or not at all. Its checkpoints are read before its log, which must not be the older one.
save() {
    local parts=("checkpoints/$run/checkpoints" checkpoints/"$run"/!(checkpoints))
    [ -d "${parts[0]}" ] || return 0
    # 1 is tar's word for files that came or went meanwhile: old checkpoints do, the newest does not.
    { tar -cf run.tar --exclude='*.orbax-checkpoint-tmp*' "${parts[@]}" || [ $? -eq 1 ]; } &&
        gcloud storage cp --quiet run.tar "$bucket/$run.tar" &&
        gcloud storage rsync --quiet -r compiled "$bucket/compiled" ||
        echo "could not save to $bucket; will try again"
}

bucket=$(metadata bucket)
run=$(metadata run-name)
read -ra flags < <(metadata flags && echo)
folder=${PPO_MASK_FOLDER:-/opt/ppo-mask}
mkdir -p "$folder/compiled" "$folder/checkpoints"
cd "$folder"

if [ ! -e installed ]; then
    rm -rf source .venv
    git clone --depth 1 "$(metadata source)" source
    # The VM's own Python may be older than 3.11.
    python3 -m pip install --quiet uv
    python3 -m uv venv --python 3.12 .venv
    python3 -m uv pip install --quiet --python .venv/bin/python -e 'source[tpu]'
    touch installed
fi

gcloud storage rsync --quiet -r "$bucket/compiled" compiled || echo "nothing compiled yet"
if [ ! -d "checkpoints/$run" ] && gcloud storage ls "$bucket/$run.tar"; then
    gcloud storage cp --quiet "$bucket/$run.tar" run.tar
    tar -xf run.tar
fi
saved=(checkpoints/"$run"/checkpoints/+([0-9]))
if [ ${#saved[@]} -gt 0 ]; then
    begin=(--resume "checkpoints/$run")
else
    # A run that came to no checkpoint has nothing to go on from.
    [ ! -d "checkpoints/$run" ] || mv "checkpoints/$run" "checkpoints/$run.$(date +%s)"
    begin=(--run-name "$run")
fi

export JAX_COMPILATION_CACHE_DIR=$folder/compiled
.venv/bin/python source/examples/train_hackmatrix.py "${begin[@]}" "${flags[@]}" &
trainer=$!
# The trainer saves on SIGTERM and ends.
trap 'kill -TERM "$trainer" 2> /dev/null' TERM
while kill -0 "$trainer" 2> /dev/null; do
    sleep "${PPO_MASK_COPY_SECONDS:-600}" &
    sleeper=$!
    wait -n "$trainer" "$sleeper" || true
    save
done
kill "$sleeper" 2> /dev/null || true
wait "$trainer"
