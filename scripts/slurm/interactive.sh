#!/bin/bash
# Trains on all nodes of an interactive allocation, as often as you like:
#
#   salloc --nodes=2 --ntasks-per-node=1 --cpus-per-task=4 --time=01:00:00
#   scripts/slurm/interactive.sh [arguments of train]
#   scripts/slurm/interactive.sh --lr 0.2
#   exit
#
# The shell of salloc may be on the login node or on the first node of the allocation.

if [ -z "${SLURM_JOB_NUM_NODES:-}" ]; then
    echo "$0: there is no allocation. Type this in the shell of salloc --nodes=2 --ntasks-per-node=1 --cpus-per-task=4" >&2
    exit 2
fi
# srun starts one ddprun per node; typed without srun, ddprun would be started once, and refuses that.
# --cpus-per-task: without it SLURM would bind all workers of a node to one CPU.
exec srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    ddprun --nproc-per-node 2 \
    train "$@"
