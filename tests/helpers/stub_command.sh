#!/usr/bin/env bash
# Stands for `python -m polarvrp COMMAND`: says when it began, sleeps, makes the outputs, says when it ended.
command=${3//-/_}
if [ "$4" = --merge ]; then command=merge; fi
echo "$EPOCHREALTIME $command begins $$" >> "$STUB_CLOCK"
seconds=STUB_SECONDS_$command
sleep "${!seconds:-0}"
case $command in
  train) touch results/models/"$4"/{weights.safetensors,config.yaml,history.parquet,metadata.json} ;;
  tables) touch results/tables/"$4".{parquet,csv,md,tex} ;;
  figures) touch results/figures/"$4".{png,pdf} ;;
  *)
    while [ "$1" != --output ]; do shift; done
    touch "${@:2}"
    ;;
esac
echo "$EPOCHREALTIME $command ends $$" >> "$STUB_CLOCK"
