// ddprun, ddprund and ddpctl in one file, because they share most of their code. The last component of argv[0] decides
// which of them runs; any other name is ddprun. See docs/design/034.

#include <sys/prctl.h>

#include <string_view>

#include "common/system/standard_fds.hpp"
#include "programs/programs.hpp"

namespace {

struct Program {
    const char* name;
    int (*main)(int argc, char** argv);
};

constexpr Program kDefault{"ddprun", ddprun::ddprun_main};
constexpr Program kOthers[] = {{"ddprund", ddprun::ddprund_main}, {"ddpctl", ddprun::ddpctl_main}};

Program program_of(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    for (const Program& program : kOthers)
        if (name == program.name) return program;
    return kDefault;
}

}  // namespace

int main(int argc, char** argv) {
    ddprun::open_standard_fds();
    const Program program = program_of(argc > 0 ? argv[0] : "");
    ::prctl(PR_SET_NAME, program.name);  // for ps and pgrep: this file is executed as ddprun or /proc/self/exe
    return program.main(argc, argv);
}
