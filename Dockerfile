# syntax=docker/dockerfile:1
# The project in a container; docs/installation.md has the commands.
FROM python:3.13-slim

# Such as `cuda,wandb`. CUDA comes with jax's wheels; of the machine only the driver is used.
ARG EXTRAS=

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".${EXTRAS:+[$EXTRAS]}" && rm -rf /src/*

# To be mounted: runs go to checkpoints/, and programs that were compiled to .cache/.
WORKDIR /work
ENV HOME=/work PYTHONUNBUFFERED=1
CMD ["hackmatrix", "train", "--preset", "fast"]
