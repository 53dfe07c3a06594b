#include "common/system/pipe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ddprun {

Result<Pipe> make_pipe(std::string_view what) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(fmt::format("cannot make a pipe {}", what), errno);
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace ddprun
