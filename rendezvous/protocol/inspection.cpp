#include "rendezvous/protocol/inspection.hpp"

#include <fmt/format.h>

#include "common/text/number.hpp"

namespace ddprun::protocol {

std::string describe_process(const RankRecord& record) {
    if (record.status && record.ended_ago)
        return fmt::format("{}, {} ago", to_string(*record.status), duration_text(*record.ended_ago));
    return record.process ? to_string(*record.process) : "";
}

}  // namespace ddprun::protocol
