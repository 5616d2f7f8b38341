"""Why did a GPU run below its clock? Reads the log of nvidia-smi: python throttled.py gpu.csv"""

import csv
import sys
from collections import Counter, defaultdict

# --8<-- [start:reasons]
# Bits of clocks_event_reasons.active, as NVML names them.
REASONS = {
    0x4: "power limit: nvidia-smi -q -d POWER shows it",
    0x8: "hardware slowdown: by heat or by a power brake",
    0x20: "too warm, the driver lowers the clock",
    0x40: "far too warm, the hardware halves the clock or worse",
    0x80: "power brake: the supply or the server asks for less",
}
# --8<-- [end:reasons]

samples, reasons, clocks, warmest = Counter(), defaultdict(Counter), defaultdict(list), Counter()
with open(sys.argv[1], newline="") as file:
    for line, row in enumerate(csv.reader(file), 1):
        if len(row) != 6:
            sys.exit(f"{sys.argv[1]}:{line}: {len(row)} fields and not 6: write the log with the command of the page")
        _, gpu, clock, temperature, _, active = (field.strip() for field in row)
        samples[gpu] += 1
        clocks[gpu].append(float(clock))
        warmest[gpu] = max(warmest[gpu], float(temperature))
        for bit, why in REASONS.items():
            reasons[gpu][why] += bool(int(active, 16) & bit)

for gpu, count in sorted(samples.items()):
    low, high = min(clocks[gpu]), max(clocks[gpu])
    print(f"GPU {gpu}: {low:.0f} to {high:.0f} MHz, up to {warmest[gpu]:.0f} °C, {count} samples")
    for why, times in reasons[gpu].most_common():
        if times:
            print(f"  {100 * times / count:3.0f} %  {why}")
