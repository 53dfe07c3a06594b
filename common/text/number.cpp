#include "common/text/number.hpp"

namespace ddprun {

std::string seconds_number(std::chrono::nanoseconds duration) {
    return fmt::format("{:.12g}", std::chrono::duration<double>(duration).count());
}

std::string seconds_text(std::chrono::nanoseconds duration) { return seconds_number(duration) + " s"; }

}  // namespace ddprun
