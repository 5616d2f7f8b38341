#!/usr/bin/env bash
# --8<-- [start:last]
journalctl --boot=-1 --dmesg | grep -iE "xid|fallen off the bus|mce|hardware error|thermal|oom" | tail
last -x shutdown reboot | head
# --8<-- [end:last]
# --8<-- [start:prove]
sudo nvidia-smi -pm 1
sudo nvidia-smi -pl 250               # watts: lower what each GPU may draw for long
sudo nvidia-smi -lgc 300,1500         # MHz: no boost, so no spikes; -rgc takes it back
# --8<-- [end:prove]
