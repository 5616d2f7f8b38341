"""The least time of a token whose weights are fetched: bytes that are not on the GPU, divided by the bandwidth."""
LINKS = {"PCIe 3 x16": 15.75, "PCIe 4 x16": 31.5, "PCIe 5 x16": 63.0, "NVMe, PCIe 4 x4": 7.9}  # GB/s, at their peak


# --8<-- [start:seconds]
def seconds_per_token(parameters, bytes_per_parameter, gpu_gb, host_gb, link, disk="NVMe, PCIe 4 x4"):
    """At batch 1. What lies on the disk crosses the disk and then the link."""
    beyond = max(0, parameters * bytes_per_parameter / 1e9 - gpu_gb)  # GB that each token has to fetch
    from_disk = max(0, beyond - host_gb)
    return (beyond - from_disk) / LINKS[link] + from_disk / min(LINKS[disk], LINKS[link])
# --8<-- [end:seconds]


for parameters, size, width in ((8.03e9, "8B", 2), (70.6e9, "70B", 2), (70.6e9, "70B", 0.5)):
    for host in (0, 160):
        time = seconds_per_token(parameters, width, gpu_gb=20, host_gb=host, link="PCIe 4 x16")
        print(f"{size}, {8 * width:g} bits, 20 GB on the GPU, {'host' if host else 'disk'}: {time:.1f} s per token or more")
