#pragma once
// CpuSet: a set of CPUs by the kernel's numbers, its text form, and the affinity mask of this process.

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

/// CPUs by the numbers of the kernel.
using CpuSet = std::set<int>;

/// A set as sched_setaffinity(2) takes it, with a bit for each CPU. Smaller than a CpuSet.
using CpuMask = std::vector<unsigned long>;

[[nodiscard]] CpuMask cpu_mask(const CpuSet& cpus);
[[nodiscard]] CpuSet cpus_in(const CpuMask& mask);

/// Returns the CPUs on which this thread may run, which a container, a scheduler or taskset(1) may have reduced. Empty
/// if the kernel does not answer.
[[nodiscard]] CpuSet allowed_cpu_set();

/// Returns how many CPUs allowed_cpu_set() has, at least 1.
[[nodiscard]] int allowed_cpus();

/// Returns "0-7,128-135", as taskset(1), numactl(8) and the files of the kernel write it; also for other numbers.
[[nodiscard]] std::string number_list(const std::set<int>& numbers);

/// Parses the contents of such a file; entries that are not numbers are skipped.
[[nodiscard]] CpuSet parse_number_list(std::string_view text);

/// Returns the CPUs that are in both sets.
[[nodiscard]] CpuSet common_cpus(const CpuSet& a, const CpuSet& b);

}  // namespace ddprun
