#include "launcher/final_report.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

namespace ddprun::launcher {

FinalReport::FinalReport() : file_(::memfd_create("ddprun-final-report", 0)) {
    if (file_) ::fcntl(file_.get(), F_SETFL, O_APPEND);
}

std::string FinalReport::read() const {
    std::string texts;
    std::array<char, 4096> piece{};
    ssize_t got = 0;
    while ((got = ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(texts.size()))) > 0) {
        texts.append(piece.data(), static_cast<std::size_t>(got));
    }
    return last_report(texts);
}

std::string last_report(const std::string& texts) {
    const auto end = texts.rfind('\0');
    if (end == std::string::npos || end == 0) return "";
    const auto before = texts.rfind('\0', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    return texts.substr(begin, end - begin);
}

}  // namespace ddprun::launcher
