#include "train/loss_log.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "train/user_error.hpp"

namespace train {
namespace {

std::string lines_up_to(const std::filesystem::path& path, std::size_t last_step) {
    std::ifstream file(path);
    std::string kept;
    std::string line;
    while (std::getline(file, line)) {
        std::size_t step = 0;
        double loss = 0;
        // The last line of a killed run may be torn; its step comes after the checkpoint then, so that it is written
        // again.
        if (std::istringstream(line) >> step >> loss && step >= 1 && step <= last_step) kept += line + "\n";
    }
    return kept;
}

}  // namespace

LossLog::LossLog(const std::filesystem::path& path, std::size_t resumed_step) : path_(path) {
    const std::string kept = lines_up_to(path, resumed_step);
    file_.reset(std::fopen(path.c_str(), "we"));
    if (!file_ || std::fputs(kept.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
        throw UserError(
            fmt::format("cannot write loss log {}: {}. Pass another --loss-log", path.string(), std::strerror(errno)));
    }
}

void LossLog::write(std::size_t step, double loss) {
    fmt::print(file_.get(), "{} {:.17g}\n", step, loss);
    if (std::fflush(file_.get()) != 0) {
        throw UserError(fmt::format("cannot write loss log {}: {}", path_.string(), std::strerror(errno)));
    }
}

}  // namespace train
