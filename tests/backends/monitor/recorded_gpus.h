// Files of /sys and /proc as the drivers of GPUs write them, after the kernel's documentation:
// hwmon/sysfs-interface.rst, gpu/drm-usage-stats.rst, gpu/amdgpu/thermal.rst,
// ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon and nouveau.rst.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace rw {

inline void put(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// Writes a recorded tree: a line "== PATH" before the text of each file.
inline void put_tree(const std::filesystem::path& folder, std::string_view tree) {
  constexpr std::string_view head = "== ";
  while (tree.starts_with(head)) {
    const size_t line = tree.find('\n'), next = std::min(tree.find("\n== ", line), tree.size() - 1);
    put(folder / tree.substr(head.size(), line - head.size()),
        next > line ? tree.substr(line + 1, next - line) : "");
    tree.remove_prefix(next + 1);
  }
}

// A Radeon RX 6800 at work. hwmon also has sensors of memory and fans.
inline constexpr std::string_view recorded_amdgpu =
    R"(== sys/bus/pci/devices/0000:03:00.0/gpu_busy_percent
87
== sys/bus/pci/devices/0000:03:00.0/mem_busy_percent
41
== sys/bus/pci/devices/0000:03:00.0/drm/card1/dev
226:1
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/name
amdgpu
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/freq1_input
2105000000
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/freq1_label
sclk
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/freq2_input
1000000000
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/temp1_input
54000
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/temp1_label
edge
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/temp2_input
66000
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/power1_average
142000000
== sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/power1_cap
203000000
== proc/4242/fdinfo/5
pos:	0
flags:	02100002
drm-driver:	amdgpu
drm-client-id:	11
drm-pdev:	0000:03:00.0
drm-memory-vram:	3072 KiB
drm-engine-gfx:	2000000000 ns
drm-engine-compute:	5000000000 ns
== proc/4242/fdinfo/6
drm-driver:	amdgpu
drm-client-id:	12
drm-pdev:	0000:03:00.0
drm-engine-gfx:	500 ns
== proc/4242/comm
train
)";

// An Arc A770 with i915, which reports energy instead of power, and the processes' engines instead
// of its own load.
inline constexpr std::string_view recorded_i915 =
    R"(== sys/bus/pci/devices/0000:04:00.0/drm/card0/gt_act_freq_mhz
600
== sys/bus/pci/devices/0000:04:00.0/drm/card0/gt/gt0/rps_act_freq_mhz
2400
== sys/bus/pci/devices/0000:04:00.0/hwmon/hwmon4/name
i915
== sys/bus/pci/devices/0000:04:00.0/hwmon/hwmon4/energy1_input
123456789
== sys/bus/pci/devices/0000:04:00.0/hwmon/hwmon4/power1_max
0
== proc/4243/fdinfo/7
drm-driver:	i915
drm-client-id:	7
drm-pdev:	0000:04:00.0
drm-total-local0:	64 MiB
drm-engine-render:	1000000000 ns
drm-engine-video:	9000000000 ns
drm-engine-capacity-video:	2
)";

// A Battlemage with xe: the sensors of the package have number 2, and engines count cycles.
inline constexpr std::string_view recorded_xe =
    R"(== sys/bus/pci/devices/0000:05:00.0/tile0/gt0/freq0/act_freq
1850
== sys/bus/pci/devices/0000:05:00.0/hwmon/hwmon5/name
xe
== sys/bus/pci/devices/0000:05:00.0/hwmon/hwmon5/temp2_input
48000
== sys/bus/pci/devices/0000:05:00.0/hwmon/hwmon5/temp3_input
52000
== sys/bus/pci/devices/0000:05:00.0/hwmon/hwmon5/energy2_input
5000000
== sys/bus/pci/devices/0000:05:00.0/hwmon/hwmon5/power2_max
190000000
== proc/4244/fdinfo/4
drm-driver:	xe
drm-client-id:	3
drm-pdev:	0000:05:00.0
drm-total-vram0:	8192 KiB
drm-cycles-rcs:	250
drm-total-cycles-rcs:	1000
drm-cycles-ccs:	0
drm-total-cycles-ccs:	1000
drm-engine-capacity-ccs:	4
== proc/4244/fdinfo/5
drm-driver:	xe
drm-client-id:	4
drm-pdev:	0000:05:00.0
drm-total-vram0:	1024 KiB
drm-cycles-rcs:	150
drm-total-cycles-rcs:	1001
)";

// A Kepler with nouveau, which has only hwmon.
inline constexpr std::string_view recorded_nouveau =
    R"(== sys/bus/pci/devices/0000:06:00.0/hwmon/hwmon2/name
nouveau
== sys/bus/pci/devices/0000:06:00.0/hwmon/hwmon2/temp1_input
41000
== sys/bus/pci/devices/0000:06:00.0/hwmon/hwmon2/power1_input
31500000
== sys/bus/pci/devices/0000:06:00.0/hwmon/hwmon2/power1_max
225000000
)";

}  // namespace rw
