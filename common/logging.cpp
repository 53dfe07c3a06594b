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
        logger->set_level(spdlog::level::from_str(name));
    }
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace ddprun
