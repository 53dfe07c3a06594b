// Where NCCL is looked for, and which versions go together.

#include "worker_lib/src/nccl/library.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/catch.hpp"

using namespace ddp::detail;
namespace fs = std::filesystem;

namespace {

/// A folder with files of NCCL, empty, which ends with its owner.
class Tree {
public:
    ~Tree() { fs::remove_all(root_); }
    Tree() = default;
    Tree(const Tree&) = delete;
    Tree& operator=(const Tree&) = delete;

    std::string add(const std::string& folder) {
        fs::create_directories(root_ / folder);
        std::ofstream(root_ / folder / kNcclLibrary).flush();
        return root_ / folder / kNcclLibrary;
    }
    [[nodiscard]] std::string path(const char* folder) const { return root_ / folder; }

private:
    const fs::path root_ = fs::temp_directory_path() / ("nccl-library-" + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("nccl: the library is found in NCCL_HOME and in Python environments, in this order", "[nccl]") {
    Tree tree;
    const std::string user = tree.add("home/.local/lib/python3.11/site-packages/nvidia/nccl/lib");
    const std::string conda = tree.add("conda/lib/python3.12/site-packages/nvidia/nccl/lib");
    const std::string venv = tree.add("venv/lib/python3.11/site-packages/nvidia/nccl/lib");
    const std::string own = tree.add("nccl/lib");
    tree.add("venv/lib/python3.11/site-packages/nvidia/cudnn/lib");
    std::map<std::string, std::string> environment{{"NCCL_HOME", tree.path("nccl")},
                                                   {"VIRTUAL_ENV", tree.path("venv")},
                                                   {"CONDA_PREFIX", tree.path("conda")},
                                                   {"HOME", tree.path("home")}};
    const auto variables = [&](const char* name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    const auto without_this_machines = [&] {
        auto files = installed_nccl(variables);
        std::erase_if(files, [](const std::string& file) { return file.starts_with("/usr/local/"); });
        return files;
    };
    CHECK(without_this_machines() == std::vector<std::string>{own, venv, conda, user});
    environment.erase("VIRTUAL_ENV");
    environment["NCCL_HOME"] = "/nonexistent";
    CHECK(without_this_machines() == std::vector<std::string>{conda, user});
    environment.clear();
    CHECK(without_this_machines().empty());
}

TEST_CASE("nccl: the CUDA version that NCCL was built with is read in its text", "[nccl]") {
    CHECK(nccl_version_text(21805) == "2.18.5");
    CHECK(cuda_version_in("\x7f"
                          "ELF NCCL version mismatch NCCL version 2.28.9+cuda13.0",
                          22809) == 13000);
    CHECK(cuda_version_in("NCCL version 2.18.3+cuda12.1 and more", 21803) == 12010);
    CHECK(cuda_version_in("NCCL version 2.18.3+cuda12.1", 22809) == 0);  // of another library
    CHECK(cuda_version_in("NCCL version 2.18.3+cuda", 21803) == 0);
    CHECK(cuda_version_in("NCCL version 2.18.3+cuda12", 21803) == 0);
    CHECK(cuda_version_in("NCCL version 2.18.3+cuda12.x", 21803) == 0);
    CHECK(cuda_version_in("", 21803) == 0);
}

TEST_CASE("nccl: a driver that is older than NCCL's CUDA is refused, whatever its minor version", "[nccl]") {
    CHECK(driver_complaint(22809, 13000, 12080) ==
          "NCCL 2.28.9 was built with CUDA 13.0, but the driver supports CUDA 12.8 at most; update the driver, or "
          "install NCCL for CUDA 12");
    CHECK(driver_complaint(22809, 12090, 12020).empty());
    CHECK(driver_complaint(22809, 12090, 13000).empty());
    CHECK(driver_complaint(22809, 0, 12020).empty());
}
