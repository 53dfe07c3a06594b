#include "worker_lib/bench/run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "worker_lib/bench/measure.hpp"

namespace ddp::bench {
namespace {

Row measure_row(ProcessGroup& group, Memory& memory, const Options& options, Call call) {
    Row row{.call = call, .bytes = call.count * size_of(call.dtype)};
    if (has_out_of_place(call.collective)) row.out_of_place = measure(group, call, memory, options);
    call.in_place = true;
    if (has_in_place(call.collective)) row.in_place = measure(group, call, memory, options);
    return row;
}

}  // namespace

std::vector<std::size_t> counts(Collective collective, const Options& options, int ranks) {
    if (collective == Collective::kBarrier) return {0};
    const std::size_t whole = has_equal_parts(collective) ? static_cast<std::size_t>(ranks) : 1;
    std::vector<std::size_t> counts;
    const auto max_bytes = static_cast<double>(options.max_bytes);
    for (auto bytes = static_cast<double>(options.min_bytes); bytes <= max_bytes;
         bytes = std::max(bytes * options.factor, 1.0)) {
        const std::size_t count = static_cast<std::size_t>(bytes) / size_of(options.dtype) / whole * whole;
        if (count == 0 && bytes >= 1) continue;  // too few for one element of each part, and 0 was not asked for
        if (counts.empty() || count != counts.back()) counts.push_back(count);
    }
    return counts;
}

std::string left_out(const Options& options, int ranks) {
    std::string names;
    for (const Collective collective : options.collectives) {
        if (counts(collective, options, ranks).empty())
            names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(collective));
    }
    return names.empty() ? ""
                         : fmt::format(
                               "{}: no size from --min-bytes {} to --max-bytes {} has an element of {} for "
                               "each of {} ranks. Pass --max-bytes {} or more",
                               names, options.min_bytes, options.max_bytes, to_string(options.dtype), ranks,
                               size_of(options.dtype) * static_cast<std::size_t>(ranks));
}

void run(ProcessGroup& group, const Options& options, detail::DeviceAccess* device, std::vector<Row>& rows,
         const std::function<void(const Row& row, bool first_of_collective)>& show) {
    Memory memory(group, options.max_bytes, options.foreign, device);
    for (const Collective collective : options.collectives) {
        bool first = true;
        for (const std::size_t count : counts(collective, options, group.size())) {
            const Call call{.collective = collective,
                            .count = count,
                            .dtype = options.dtype,
                            .op = options.reduce_op,
                            .root = options.root,
                            .in_place = false,
                            .rank = group.rank(),
                            .ranks = group.size()};
            rows.push_back(measure_row(group, memory, options, call));
            show(rows.back(), first);
            first = false;
        }
    }
}

}  // namespace ddp::bench
