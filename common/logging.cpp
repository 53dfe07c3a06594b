#include "common/logging.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace ddprun {

void init_logging(const std::string& program) {
    auto logger = spdlog::stderr_color_mt(program);
    logger->set_pattern("[%n] %^%v%$");
    if (const char* level = std::getenv("LOGLEVEL")) {
        std::string name = level;
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        // from_str gives `off` for a word that it does not know: a typing error must not silence the program.
        const auto parsed = spdlog::level::from_str(name);
        if (parsed != spdlog::level::off || name == "off") logger->set_level(parsed);
    }
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace ddprun
