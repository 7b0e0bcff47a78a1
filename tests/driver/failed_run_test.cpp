// A verb that starts programs ends as they end, and says what to do.

#include "driver/launch/failed_run.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "driver/launch/digest.h"
#include "tests/driver/ask.h"
#include "tests/driver/variable.h"
#include "tests/support/onnx_text.h"
#include "tests/support/test_data.h"
#include "wire/exit_codes.h"

namespace graphpipe::tests {
namespace {

using graphpipe::testing::TemporaryFolder;

std::string plan_in(const TemporaryFolder& folder) {
  const Answer answer = ask({"plan", data_path("models/dlrm/model.onnx"), "--loss", "bce:logit,click", "--cluster",
                             "default", "--devices", "1", "--batch", "8", "-o", folder / "plan.json", "-q"});
  CAPTURE(answer.err);
  REQUIRE(answer.code == 0);
  return folder / "plan.json";
}

/// A program that ends with this code, at once.
void write_program(const TemporaryFolder& folder, const std::string& path, int exit_code) {
  folder.write(path, text("#!/bin/sh\nexit ", exit_code, "\n"));
  std::filesystem::permissions(folder / path, std::filesystem::perms::owner_all);
  folder.write(path + ".sha256", driver::sha256_of_file(folder / path).value() + "  program\n");
}

void check_end(const Answer& answer, int code) {
  CAPTURE(answer.err);
  CHECK(answer.code == code);
  const nlohmann::json problem = answer.object()["diagnostics"][0];
  CHECK(holds(problem["message"], text("exit code ", code)));
  CHECK(holds(answer.err, problem["hint"].get<std::string>()));
  CHECK(answer.object()["complete"] == false);
}

TEST_CASE("a failed run leads to the exit code of its programs, each with something to do") {
  for (const int code : {wire::kExitCheckFailed, wire::kExitUsage, wire::kExitInputRefused, wire::kExitEnvironment,
                         wire::kExitPeerFailed, wire::kExitPartial, wire::kExitInternal}) {
    CAPTURE(code);
    const Diagnostics problems = driver::failed_run({.exit_code = code, .report = {}}, "the run", "folder");
    REQUIRE(problems.size() == 1);
    const Diagnostic& problem = problems.front();
    CHECK(exit_code_of(problem.code) == code);
    CHECK(problem.message == text("the run ended with exit code ", code));
    CHECK_FALSE(problem.hint.empty());
  }
  // A folder that an earlier version built may refuse a flag that this launcher gives by itself.
  const Diagnostics refused = driver::failed_run({.exit_code = wire::kExitUsage, .report = {}}, "the run", "folder");
  CHECK(holds(refused.front().hint, "run `graphpipe build` again"));
  // Not a code of ours: something else ended the program.
  CHECK(driver::failed_run({.exit_code = 99, .report = {}}, "the run", "folder").front().code == Code::kPeerFailed);
}

TEST_CASE("what the programs of a failed run named is told with it, first what has the code of the end") {
  const Diagnostic lost{.code = Code::kPeerFailed, .message = "rank 1 is lost", .hint = "start again"},
      bad{.code = Code::kMalformedFile, .message = "a row is missing", .hint = "add it"};
  const Diagnostics problems =
      driver::failed_run({.exit_code = wire::kExitInputRefused, .report = {}, .problems = {lost, bad}}, "the run", "f");
  REQUIRE(problems.size() == 3);
  CHECK(problems[0].message == bad.message);
  CHECK(problems[1].message == "the run ended with exit code 3");
  CHECK(problems[2].message == lost.message);
}

TEST_CASE("verify ends with the exit code of the programs of its folder") {
  const TemporaryFolder folder;
  REQUIRE(ask({"generate", plan_in(folder), "-o", folder / "out", "-q"}).code == 0);
  for (const int code : {wire::kExitUsage, wire::kExitInputRefused, wire::kExitEnvironment, wire::kExitPeerFailed}) {
    write_program(folder, "out/build/device", code);
    check_end(ask({"verify", folder / "out", "--json"}), code);
  }
  // The report is that of a training of one step; the serial interpreter, which is the same program, has none.
  folder.write("out/build/device", text("#!/bin/sh\ncase \"$*\" in *--serial*) exit ", int{wire::kExitEnvironment},
                                        ";; esac\n", "echo '{\"losses\": [1]}'\n"));
  folder.write("out/build/device.sha256", driver::sha256_of_file(folder / "out/build/device").value() + "  program\n");
  check_end(ask({"verify", folder / "out", "--json"}), wire::kExitEnvironment);
}

TEST_CASE("programs that find no memory before they begin are told of with the limit of address space") {
  const TemporaryFolder folder;
  REQUIRE(ask({"generate", plan_in(folder), "-o", folder / "out", "-q"}).code == 0);
  const auto run_program = [&](const std::string& lines) {
    folder.write("out/build/device", "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(folder / "out/build/device", std::filesystem::perms::owner_all);
    folder.write("out/build/device.sha256",
                 driver::sha256_of_file(folder / "out/build/device").value() + "  program\n");
    return ask({"run", folder / "out"});
  };
  const Answer not_loaded = run_program("exit 127");  // as the loader ends
  CHECK(not_loaded.code == wire::kExitEnvironment);
  CHECK(holds(not_loaded.err, "error[environment] device 0 did not start"));
  CHECK(holds(not_loaded.err, "check the memory of this host"));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit low{rlim_t{1} << 40, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &low) == 0);
  const Answer gave_up = run_program("kill -ABRT $$");
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(gave_up.code == wire::kExitPeerFailed);
  CHECK(holds(gave_up.err, "device 0 was ended by signal 6"));
  CHECK(holds(gave_up.err, "raise the limit of address space (ulimit -v), which is 1073741824 KiB"));
}

TEST_CASE("a paced run ends with the exit code of its programs") {
  const TemporaryFolder folder;
  const std::string plan = plan_in(folder);
  const Variable runtime("GRAPHPIPE_RUNTIME_DIR", folder / "runtime");
  for (const int code : {wire::kExitUsage, wire::kExitInputRefused, wire::kExitEnvironment, wire::kExitPeerFailed}) {
    write_program(folder, "runtime/bin/graphpipe-pace", code);
    check_end(ask({"run", plan, "--pace", "--json"}), code);
  }
}

TEST_CASE("a profile ends with the exit code of the program that measures") {
  const TemporaryFolder folder;
  // In place of CMake, which is called as `cmake -S FOLDER -B BUILD` and `cmake --build BUILD`: it leaves a program
  // that finds no space on the disk.
  write_program(folder, "profile", wire::kExitEnvironment);
  folder.write("bin/cmake",
               text("#!/bin/sh\nif [ \"$1\" = -S ]; then mkdir -p \"$4\"; echo > \"$4/CMakeCache.txt\"; exit; "
                    "fi\ncp '",
                    folder / "profile", "' '", folder / "profile.sha256", "' \"$2\"\n"));
  std::filesystem::permissions(folder / "bin/cmake", std::filesystem::perms::owner_all);
  folder.write("runtime/share/graphpipe/GraphPipeConfig.cmake", "");
  const Variable runtime("GRAPHPIPE_RUNTIME_DIR", folder / "runtime");
  const Variable path("PATH", (folder / "bin") + ":" + getenv("PATH"));
  check_end(ask({"profile", data_path("models/dlrm/model.onnx"), "--loss", "bce:logit,click", "--batch", "8", "-o",
                 folder / "profile.json", "--json"}),
            wire::kExitEnvironment);
}

/// What the verb answers on its standard error where Ctrl-C reaches it while CMake runs. In a process of its own: an
/// interrupt is remembered.
std::string interrupted_while_building(const TemporaryFolder& folder, const std::vector<std::string>& words) {
  folder.write("bin/cmake", "#!/bin/sh\nkill -INT $PPID\nexec sleep 20\n");
  std::filesystem::permissions(folder / "bin/cmake", std::filesystem::perms::owner_all);
  folder.write("runtime/share/graphpipe/GraphPipeConfig.cmake", "");
  const Variable runtime("GRAPHPIPE_RUNTIME_DIR", folder / "runtime");
  const Variable path("PATH", (folder / "bin") + ":" + getenv("PATH"));
  const pid_t child = fork();
  if (child == 0) {
    const Answer answer = ask(words);
    folder.write("answer", answer.err);
    _exit(answer.code == 128 + SIGINT ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  std::ostringstream text;
  text << std::ifstream(folder / "answer").rdbuf();
  return text.str();
}

TEST_CASE("who interrupts a build is told to start the same command again, and what is kept") {
  const TemporaryFolder folder;
  const std::vector<std::string> model{data_path("models/dlrm/model.onnx"), "--loss", "bce:logit,click", "--batch",
                                       "8"};
  const auto told = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), model.begin(), model.end());
    words.insert(words.end(), more.begin(), more.end());
    const std::string errors = interrupted_while_building(folder, words);
    CAPTURE(errors);
    CHECK(holds(errors, "the build was interrupted; start the same command again"));
    return errors;
  };
  CHECK(holds(told({"compile"}, {"--cluster", "default", "--devices", "1", "-o", folder / "out", "-q"}),
              "what was compiled is kept"));
  CHECK(holds(told({"profile"}, {"-o", folder / "profile.json", "-q"}), "with --keep FOLDER what is compiled is kept"));
  CHECK(holds(told({"profile"}, {"-o", folder / "profile.json", "-q", "--keep", folder / "kept"}),
              "what was compiled is kept"));
}

}  // namespace
}  // namespace graphpipe::tests
