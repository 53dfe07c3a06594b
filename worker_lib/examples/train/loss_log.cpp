#include "train/loss_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "train/user_error.hpp"

namespace train {
namespace {

std::string failure(const std::filesystem::path& path, const char* why, const char* remedy) {
    return fmt::format("cannot write loss log {}: {}. {}", path.string(), why, remedy);
}

/// Returns the lines of steps 1 to `last_step`. Reads regular files only: reading a pipe or a device may never end.
std::string lines_up_to(const std::filesystem::path& path, std::size_t last_step) {
    std::error_code no_such_file;
    if (last_step == 0 || !std::filesystem::is_regular_file(path, no_such_file)) return {};
    std::ifstream file(path);
    std::string kept;
    std::string line;
    while (std::getline(file, line)) {
        std::size_t step = 0;
        double loss = 0;
        // The last line of a killed run may be incomplete. Its step is after the checkpoint then, and is written again.
        if (std::istringstream(line) >> step >> loss && step >= 1 && step <= last_step) kept += line + "\n";
    }
    return kept;
}

/// Opens the file. Returns null with errno on failure. Throws UserError for a pipe without a reader: opening it would
/// block this rank, and with it all others.
std::FILE* open_for_writing(const std::filesystem::path& path) {
    std::error_code no_such_file;
    if (std::filesystem::is_fifo(path, no_such_file)) {
        const int pipe = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (pipe < 0 && errno == ENXIO)
            throw UserError(failure(path, "this pipe has no reader", "Start the reader before the job"));
        if (pipe < 0) return nullptr;
        ::fcntl(pipe, F_SETFL, O_WRONLY);
        return ::fdopen(pipe, "w");
    }
    return std::fopen(path.c_str(), "we");
}

}  // namespace

LossLog::LossLog(const std::filesystem::path& path, std::size_t resumed_step) : path_(path) {
    const std::string kept = lines_up_to(path, resumed_step);
    file_.reset(open_for_writing(path));
    if (!file_ || std::fputs(kept.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
        throw UserError(failure(path, std::strerror(errno), "Pass another --loss-log"));
}

void LossLog::write(std::size_t step, double loss) {
    fmt::print(file_.get(), "{} {:.17g}\n", step, loss);
    if (std::fflush(file_.get()) != 0)
        throw UserError(failure(path_, std::strerror(errno), "Make room there, or pass another --loss-log"));
}

}  // namespace train
