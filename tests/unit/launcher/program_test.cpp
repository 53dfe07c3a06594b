// Which file a program's name means, and the message when there is none.

#include "launcher/program.hpp"

#include <unistd.h>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using Words = std::vector<std::string>;

namespace {

/// Two folders of a PATH, and the one of ddprun itself.
struct Folders {
    TemporaryDirectory temp;
    std::filesystem::path a = temp.path() / "a";
    std::filesystem::path b = temp.path() / "b";
    std::filesystem::path own = temp.path() / "own";
    SearchPath search{a.string() + ":" + b.string(), own};

    std::string program(const std::string& name, mode_t mode = 0755) const {
        return temp.file(name, "#!/bin/sh\n", mode).string();
    }
};

Program asked(Words command) {
    Program program;
    program.command = std::move(command);
    return program;
}

Words argv_of(const Program& program, const Environment& environment, const SearchPath& search) {
    return worker_command(program, environment, search).value().argv;
}

}  // namespace

TEST_CASE("a bare name is searched on PATH in order, then beside ddprun", "[launcher][unit]") {
    const Folders folders;
    const std::string own = folders.program("own/train");
    CHECK(argv_of(asked({"train", "--steps", "3"}), {}, folders.search) == Words{own, "--steps", "3"});
    const std::string in_b = folders.program("b/train");
    CHECK(argv_of(asked({"train"}), {}, folders.search) == Words{in_b});
    folders.program("a/train", 0644);  // not executable: the search goes on
    CHECK(argv_of(asked({"train"}), {}, folders.search) == Words{in_b});
    std::filesystem::create_directories(folders.a / "b");
    CHECK_FALSE(worker_command(asked({"b"}), {}, folders.search).has_value());
}

TEST_CASE("a name with a slash is that file and no other", "[launcher][unit]") {
    const Folders folders;
    folders.program("a/train");
    const std::string path = folders.program("elsewhere/train");
    CHECK(argv_of(asked({path}), {}, folders.search) == Words{path});
    const auto missing = worker_command(asked({"./no-such/train"}), {}, folders.search);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().code == Errc::kNotFound);
    CHECK_THAT(missing.error().message, Catch::StartsWith("no program ./no-such/train: No such file or directory."));
}

TEST_CASE("the message about an unknown program says where it was searched", "[launcher][unit]") {
    const Folders folders;
    const auto missing = worker_command(asked({"trian"}), {}, folders.search);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().code == Errc::kNotFound);
    CHECK(missing.error().message ==
          "no program 'trian': not found in the 2 directories of PATH. Check the spelling, or give its path.");
    CHECK_THAT(worker_command(asked({"2"}), {}, folders.search).error().message,
               Catch::EndsWith("--local-nodes and --standalone take no number: the number of nodes is --nnodes."));
    folders.program("own/train");
    const auto near = worker_command(asked({"trian"}), {}, folders.search);
    CHECK_THAT(near.error().message, Catch::EndsWith("PATH. Did you mean train?"));
}

TEST_CASE("a program that lies in the current directory is to be called by its path", "[launcher][unit]") {
    const Folders folders;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folders.temp.path());
    folders.program("here");
    folders.program("plain", 0644);
    folders.program("script.py", 0644);
    const auto message = [&](const char* name) {
        return worker_command(asked({name}), {}, folders.search).error().message;
    };
    CHECK_THAT(message("here"), Catch::EndsWith("There is one in this directory: write ./here."));
    CHECK_THAT(message("plain"),
               Catch::Contains("chmod +x plain, then write ./plain; a Python script: --run-path plain."));
    CHECK_THAT(message("script"), Catch::Contains("script.py"));
    CHECK_THAT(message("scirpt.py"),
               Catch::Contains("no script scirpt.py") && Catch::Contains("Did you mean script.py?"));
    std::filesystem::current_path(before);
}

TEST_CASE("messages name a script by its own name, not by its interpreter's", "[launcher][unit]") {
    const auto name = [](Words typed, Words command) { return program_name(asked(std::move(typed)), command); };
    CHECK(name({"train", "x.py"}, {"/usr/bin/train", "x.py"}) == "train");
    CHECK(name({"job/train.py"}, {"/usr/bin/python3", "-u", "job/train.py"}) == "train.py (python3)");
    CHECK(name({"python3", "-u", "a/train.py", "b.py"}, {"/usr/bin/python3", "-u", "a/train.py", "b.py"}) ==
          "train.py (python3)");
    CHECK(name({"bash", "run.sh"}, {"/bin/bash", "run.sh"}) == "run.sh (bash)");
    CHECK(name({"sh", "-c", "x.sh"}, {"/bin/sh", "-c", "x.sh"}) == "sh");
    Program module = asked({"pkg.train"});
    module.module = true;
    CHECK(program_name(module, {"/usr/bin/python3", "-u", "-m", "pkg.train"}) == "-m pkg.train (python3)");
}

TEST_CASE("a file that cannot be executed is a different error from one that is not there", "[launcher][unit]") {
    const Folders folders;
    const std::string plain = folders.program("a/notes", 0644);
    for (const Words& words : {Words{"notes"}, Words{plain}, Words{folders.a.string()}}) {
        CAPTURE(words);
        const auto refused = worker_command(asked(words), {}, folders.search);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == Errc::kRefused);
        CHECK_THAT(refused.error().message, Catch::StartsWith("cannot execute "));
    }
}

TEST_CASE("Python programs run unbuffered under the chosen interpreter", "[launcher][unit]") {
    const Folders folders;
    const std::string python = folders.program("a/python3");
    const std::string other = folders.program("b/python3.9");
    const std::string script = folders.temp.file("work/train.py", "", 0644).string();

    CHECK(argv_of(asked({script, "--lr", "1"}), {}, folders.search) == Words{python, "-u", script, "--lr", "1"});
    CHECK(argv_of(asked({script}), {{"PYTHON_EXEC", other}}, folders.search) == Words{other, "-u", script});
    CHECK(argv_of(asked({script}), {{"PYTHON_EXEC", "python3.9"}}, folders.search) == Words{other, "-u", script});

    Program module = asked({"package.train", "x"});
    module.module = true;
    CHECK(argv_of(module, {}, folders.search) == Words{python, "-u", "-m", "package.train", "x"});

    Program by_path = asked({folders.temp.file("work/train", "", 0644).string(), "x"});
    by_path.run_path = by_path.no_python = true;  // it wins, as in torchrun
    CHECK(argv_of(by_path, {}, folders.search) == Words{python, "-u", by_path.command.front(), "x"});
    CHECK(program_name(by_path, {python, "-u", by_path.command.front(), "x"}) == "train (python3)");

    Program direct = asked({folders.program("work/tool.py")});
    direct.no_python = true;
    CHECK(argv_of(direct, {}, folders.search) == direct.command);
}

TEST_CASE("without PYTHON_EXEC an active environment has the interpreter, then PATH", "[launcher][unit]") {
    const Folders folders;
    const std::string on_path = folders.program("b/python3");
    const std::string in_venv = folders.program("venv/bin/python3");
    const std::string in_conda = folders.program("conda/bin/python");
    const std::string script = folders.temp.file("work/train.py", "", 0644).string();
    const std::string venv = (folders.temp.path() / "venv").string();
    const std::string conda = (folders.temp.path() / "conda").string();
    const std::string gone = (folders.temp.path() / "gone").string();
    const auto chosen = [&](const Environment& environment) {
        const auto command = worker_command(asked({script}), environment, folders.search).value();
        CHECK(command.argv.front() == command.python.path);
        return std::pair(command.python.path, command.python.reason);
    };
    using Choice = std::pair<std::string, std::string>;
    CHECK(chosen({}) == Choice(on_path, "the first python3 on PATH"));
    CHECK(chosen({{"VIRTUAL_ENV", venv}, {"CONDA_PREFIX", conda}}) == Choice(in_venv, "from VIRTUAL_ENV"));
    CHECK(chosen({{"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", conda}}) == Choice(in_conda, "from CONDA_PREFIX"));
    CHECK(chosen({{"VIRTUAL_ENV", gone}, {"CONDA_PREFIX", conda}}) ==
          Choice(in_conda, "from CONDA_PREFIX; VIRTUAL_ENV=" + gone + " has no usable bin/python3 or bin/python"));
    CHECK(chosen({{"CONDA_PREFIX", gone}}) == Choice(on_path, "the first python3 on PATH; CONDA_PREFIX=" + gone +
                                                                  " has no usable bin/python3 or bin/python"));
    CHECK(chosen({{"PYTHON_EXEC", on_path}, {"VIRTUAL_ENV", venv}}) == Choice(on_path, "from PYTHON_EXEC"));
    CHECK(chosen({{"PYTHON_EXEC", ""}, {"VIRTUAL_ENV", venv}}) == Choice(in_venv, "from VIRTUAL_ENV"));
    CHECK_THAT(worker_command(asked({script}), {{"PYTHON_EXEC", "/nope"}, {"VIRTUAL_ENV", venv}}, folders.search)
                   .error()
                   .message,
               Catch::Contains("Unset PYTHON_EXEC to use " + in_venv + ","));
    CHECK(worker_command(asked({on_path}), {{"VIRTUAL_ENV", venv}}, folders.search).value().python.path.empty());

    // What pip has put beside ddprun, which a python3 alone is not.
    const std::string beside = folders.program("own/python3");
    CHECK(chosen({{"VIRTUAL_ENV", venv}}) == Choice(in_venv, "from VIRTUAL_ENV"));
    folders.program("share/ddprun/wheel", 0644);
    CHECK(chosen({{"VIRTUAL_ENV", venv}}) == Choice(beside, "for which pip has installed ddprun"));
    CHECK(chosen({{"PYTHON_EXEC", on_path}}) == Choice(on_path, "from PYTHON_EXEC"));
}

TEST_CASE("a Python script whose name does not end in .py is to be run with --run-path", "[launcher][unit]") {
    const Folders folders;
    const auto before = std::filesystem::current_path();
    std::filesystem::create_directories(folders.temp.path() / "work");
    std::filesystem::current_path(folders.temp.path() / "work");
    folders.temp.file("work/train", "#!/usr/bin/env python3\nprint(1)\n", 0644);
    folders.temp.file("work/run", "#!/bin/sh\n", 0644);
    folders.temp.file("work/plain", "print(1)\n", 0644);
    folders.temp.file("work/probe", "#!/usr/bin/python3.11\n", 0755);
    const auto message = [&](const char* name) {
        return worker_command(asked({name}), {}, folders.search).error().message;
    };
    CHECK(message("./train") ==
          "cannot execute ./train: Permission denied. It is a Python script: write ddprun [options] --run-path "
          "./train.");
    CHECK_THAT(message("./plain"), Catch::EndsWith("(chmod +x), or name its interpreter: ddprun [options] bash "
                                                   "./plain; a Python script: --run-path ./plain."));
    CHECK_THAT(message("./run"), Catch::EndsWith("ddprun [options] bash ./run."));
    CHECK_THAT(message("train"), Catch::EndsWith("write ddprun [options] --run-path train."));
    CHECK_THAT(message("probe"), Catch::EndsWith("write ddprun [options] --run-path probe."));
    std::filesystem::current_path(before);
}

TEST_CASE("messages have the program with its arguments as typed, cut", "[launcher][unit]") {
    CHECK(typed_command(asked({"train"})) == "train");
    CHECK(typed_command(asked({"./train", "--lr", "1", "", "a b"})) == "./train --lr 1 '' 'a b'");
    CHECK(typed_command(asked({"sh", "-c", "a\nb"})) == "sh -c 'a\\x0ab'");
    CHECK(typed_command(asked({"train", "--name", "it's", "$HOME;*"})) == "train --name 'it'\\''s' '$HOME;*'");
    CHECK(typed_command(asked({"train", "--wandb-key", "abc", "--API_TOKEN=x y", "--keys", "3", "key"})) ==
          "train --wandb-key '***' '--API_TOKEN=***' --keys 3 key");
    CHECK(typed_command(asked({"env", "WANDB_API_KEY=abc", "train", "logger.api_key=abc", "--password", "-x1"})) ==
          "env 'WANDB_API_KEY=***' train 'logger.api_key=***' --password '***'");
    CHECK(typed_command(asked({"train", "--use-key", "--lr", "1", "--mode=token", "2", "--monkey", "3", "--key=4",
                               "5"})) == "train --use-key --lr 1 --mode=token 2 --monkey 3 '--key=***' 5");
    const std::string cut = typed_command(asked({"train", std::string(300, 'x')}));
    CHECK_THAT(cut, Catch::StartsWith("train xxx") && Catch::EndsWith("x…"));
    CHECK(cut.size() < 210);
    Program module = asked({"pkg.train", "x"});
    module.module = true;
    CHECK(typed_command(module) == "-m pkg.train x");
}

TEST_CASE("secrets anywhere in a word are masked, and user and password of URLs", "[launcher][unit]") {
    const auto masked = [](const std::string& word) { return typed_command(asked({"sh", word})).substr(3); };
    CHECK(masked("LR=1 WANDB_API_KEY=geheim PATH=/x train") == "'LR=1 WANDB_API_KEY=*** PATH=/x train'");
    CHECK(masked("cd x; TOKEN=\"a b\\\" c\"d train --api-token=e f") == "'cd x; TOKEN=*** train --api-token=*** f'");
    CHECK(masked("export HF_TOKEN=a; exec env PWD=b c") == "'export HF_TOKEN=*** exec env PWD=*** c'");
    CHECK(masked("a PASSWORD='it is open") == "'a PASSWORD=***'");
    CHECK(masked("+model.api_key=a b") == "'+model.api_key=***'");
    CHECK(masked("--env=API_KEY=a") == "'--env=API_KEY=***'");
    CHECK(masked("https://user:pw@host/x@1") == "'https://***@host/x@1'");
    CHECK(masked("--proxy=http://a:b@c@h:80") == "'--proxy=http://***@h:80'");
    CHECK(masked("git clone https://ghp_x@h/r s3://bucket/@v") == "'git clone https://***@h/r s3://bucket/@v'");
    CHECK(masked("http://h/?a=1@b") == "'http://h/?a=1@b'");
    CHECK(masked("x=1 keys=2 a==b =") == "'x=1 keys=2 a==b ='");
}

TEST_CASE("the report has the command that was started, in a form that can be pasted", "[launcher][unit]") {
    const auto started = [](Words argv) { return started_command({{{std::move(argv), {}}, 1}}); };
    CHECK(started({"/usr/bin/python3", "-u", "env.py"}) == "/usr/bin/python3 -u env.py");
    CHECK(started({"/usr/bin/python3", "-u", "env.py", "a b"}) == "/usr/bin/python3 -u env.py 'a b'");
    CHECK(started({"/bin/sh", "-c", "a\nb"}) == "/bin/sh -c 'a\nb'");
    CHECK(started({"/bin/train", "--key", "abc"}) == "/bin/train --key '***'");
    CHECK(started({"/bin/train", std::string(300, 'x')}) == "/bin/train " + std::string(300, 'x'));
    CHECK(started_command({{{{"/bin/a", "1"}, {}}, 1}, {{{"/bin/b"}, {}}, 2}}) == "/bin/a 1 : /bin/b");
}

TEST_CASE("a script must be there, and so must Python", "[launcher][unit]") {
    const Folders folders;
    const auto no_script = worker_command(asked({"gone.py"}), {}, folders.search);
    REQUIRE_FALSE(no_script.has_value());
    CHECK(no_script.error().code == Errc::kNotFound);
    CHECK_THAT(no_script.error().message, Catch::StartsWith("no script gone.py"));

    const std::string script = folders.temp.file("train.py", "", 0644).string();
    const auto no_python = worker_command(asked({script}), {}, folders.search);
    REQUIRE_FALSE(no_python.has_value());
    CHECK(no_python.error().code == Errc::kNotFound);
    CHECK_THAT(no_python.error().message, Catch::Contains("PYTHON_EXEC"));
}

TEST_CASE("a bad PYTHON_EXEC is reported with its kind and a remedy, never as a bad script", "[launcher][unit]") {
    const Folders folders;
    const std::string script = folders.temp.file("work/train.py", "", 0644).string();
    const std::string plain = folders.temp.file("work/python3.9", "", 0644).string();
    const std::string folder = folders.temp.path().string();
    folders.temp.file("a/python3.8", "", 0644);
    const auto message = [&](const std::string& named, Errc code) {
        const auto refused = worker_command(asked({script}), {{"PYTHON_EXEC", named}}, folders.search);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == code);
        CHECK_THAT(refused.error().message,
                   Catch::StartsWith("PYTHON_EXEC=" + named + ": cannot run Python programs with that interpreter: ") &&
                       Catch::EndsWith(". Set PYTHON_EXEC to the path of a Python; PATH has no python3 either."));
        return refused.error().message;
    };
    CHECK_THAT(message("/no/such/python", Errc::kNotFound), Catch::Contains(": there is no such file. Set"));
    CHECK_THAT(message("no/such/python", Errc::kNotFound),
               Catch::Contains("no such file (a relative path starts in /"));
    CHECK_THAT(message("python9", Errc::kNotFound), Catch::Contains(": it is in no directory of PATH. Set"));
    CHECK_THAT(message(plain, Errc::kRefused), Catch::Contains(": that file is not executable (chmod +x). Set"));
    CHECK_THAT(message(folder, Errc::kRefused), Catch::Contains(": that is a folder. Set"));
    CHECK_THAT(message("python3.8", Errc::kRefused),
               Catch::Contains(": the file of that name on PATH is not executable"));
    CHECK_THAT(message("python3 -X dev", Errc::kNotFound),
               Catch::Contains("; it takes one program, without arguments. Set"));

    const std::string python = folders.program("b/python3");
    CHECK_THAT(worker_command(asked({script}), {{"PYTHON_EXEC", "/nope"}}, folders.search).error().message,
               Catch::EndsWith(": there is no such file. Unset PYTHON_EXEC to use " + python +
                               ", or set it to the path of another Python."));
}

TEST_CASE("ddprun finds the folder that it is in", "[launcher][unit]") {
    CHECK(std::filesystem::equivalent(own_folder(), std::filesystem::read_symlink("/proc/self/exe").parent_path()));
}

TEST_CASE("`ddprun check` runs the ddp-check beside ddprun, whatever PATH has", "[launcher][unit]") {
    const Folders folders;
    folders.program("a/ddp-check");
    Program check = asked({"ddp-check", "--json", "f"});
    check.check = true;
    CHECK_THAT(worker_command(check, {}, folders.search).error().message,
               Catch::StartsWith((folders.own / "ddp-check").string() + " is missing"));
    const std::string own = folders.program("own/ddp-check");
    CHECK(argv_of(check, {}, folders.search) == Words{own, "--json", "f"});
}

TEST_CASE("several programs are one command line, which nodes compare", "[launcher][unit]") {
    const std::vector<Program> both{asked({"train", "--key", "abc"}), asked({"serve"})};
    CHECK(typed_command(both) == "train --key '***' : serve");
    CHECK(typed_command({asked({"train"})}) == "train");
    CHECK(command_hash(both) != command_hash({asked({"train", "--key", "abc", ":", "serve"})}));
    CHECK(command_hash(both) != command_hash({both[1], both[0]}));
    CHECK(command_hash({asked({"a", "b"})}) != command_hash({asked({"a"}), asked({"b"})}));
    std::vector<Program> module = both;
    module[1].module = true;
    CHECK(command_hash(both) != command_hash(module));
}
