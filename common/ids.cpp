#include "common/ids.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>

#include "common/error.hpp"

namespace ddprun {

std::string random_id() {
    std::array<unsigned char, 16> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw ErrorException(system_error("cannot draw a random id", errno));
    }
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace ddprun
