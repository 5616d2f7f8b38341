#!/usr/bin/env bash
# --8<-- [start:now]
nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER
# --8<-- [end:now]
# --8<-- [start:log]
nvidia-smi --query-gpu=timestamp,index,clocks.sm,temperature.gpu,power.draw,clocks_event_reasons.active \
  --format=csv,noheader,nounits --loop=1 > gpu.csv
# --8<-- [end:log]
# --8<-- [start:lanes]
nvidia-smi --query-gpu=name,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv
# --8<-- [end:lanes]
