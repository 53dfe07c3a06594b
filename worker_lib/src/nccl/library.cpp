#include "worker_lib/src/nccl/library.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <charconv>
#include <fstream>

namespace ddp::detail {

std::vector<std::string> installed_nccl(const Variables& variables) {
    std::vector<std::string> files;
    const auto add = [&](std::string_view root, std::string_view folder) {
        const std::string pattern = fmt::format("{}/{}/{}", root, folder, kNcclLibrary);
        glob_t found{};
        if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
            files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
        ::globfree(&found);
    };
    constexpr std::string_view kPackage = "lib/python3*/site-packages/nvidia/nccl/lib";
    if (const auto root = variables("NCCL_HOME")) add(*root, "lib*");
    if (const auto root = variables("VIRTUAL_ENV")) add(*root, kPackage);
    if (const auto root = variables("CONDA_PREFIX")) add(*root, kPackage);
    if (const auto root = variables("HOME")) add(*root + "/.local", kPackage);
    add("/usr/local", kPackage);
    add("/usr/local", "lib/python3*/dist-packages/nvidia/nccl/lib");  // Debian's pip
    return files;
}

std::optional<std::string> nccl_setting(const Variables& variables, const char* name) {
    if (auto set = variables(name)) return set;
    std::vector<std::string> files;
    const std::string chosen = variables("NCCL_CONF_FILE").value_or("");
    if (!chosen.empty())
        files.push_back(chosen);
    else if (const auto home = variables("HOME"))
        files.push_back(*home + "/.nccl.conf");
    files.emplace_back("/etc/nccl.conf");
    const std::string begin = fmt::format("{}=", name);
    for (const std::string& file : files) {
        std::ifstream lines(file);
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(begin)) return line.substr(begin.size());
    }
    return std::nullopt;
}

std::string nccl_version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int cuda_version_in(std::string_view image, int version) {
    const std::string before = fmt::format("NCCL version {}+cuda", nccl_version_text(version));
    const auto found = image.find(before);
    if (found == std::string_view::npos) return 0;
    const std::string_view text = image.substr(found + before.size(), 8);
    const char* const end = text.data() + text.size();
    int major = 0, minor = 0;
    const auto [dot, bad_major] = std::from_chars(text.data(), end, major);
    if (bad_major != std::errc() || dot == end || *dot != '.') return 0;
    if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return 0;
    return major * 1000 + minor * 10;
}

std::string driver_complaint(int version, int built_with, int driver) {
    if (built_with / 1000 <= driver / 1000) return {};
    return fmt::format(
        "NCCL {} was built with CUDA {}.{}, but the driver supports CUDA {}.{} at most; update the "
        "driver, or install NCCL for CUDA {}",
        nccl_version_text(version), built_with / 1000, built_with % 1000 / 10, driver / 1000, driver % 1000 / 10,
        driver / 1000);
}

}  // namespace ddp::detail
