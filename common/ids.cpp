#include "common/ids.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>

#include "common/error.hpp"
#include "common/job_limits.hpp"
#include "common/text/escape.hpp"
#include "common/text/utf8.hpp"

namespace ddprun {

std::string random_id() {
    std::array<unsigned char, 16> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw ErrorException(system_error("cannot draw a random id", errno));
    }
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string check_run_id(std::string_view id) {
    if (id.empty()) return "must not be empty";
    if (id.size() > kMaxRunIdBytes) return fmt::format("longer than {} bytes", kMaxRunIdBytes);
    for (std::string_view rest = id; !rest.empty();) {
        const std::size_t bytes = character_bytes(rest);
        if (bytes == 0) return "not valid UTF-8";
        if (control_length(rest) > 0) return "has a control character";
        rest.remove_prefix(bytes);
    }
    return {};
}

}  // namespace ddprun
