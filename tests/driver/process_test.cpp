#include "driver/launch/process.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "driver/report/run_report.h"

using namespace graphpipe;
using namespace graphpipe::driver;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Whether this becomes true within ten seconds.
bool becomes(const std::function<bool()>& holds) {
  for (const auto start = std::chrono::steady_clock::now(); seconds_since(start) < 10;) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// A process that ignores SIGTERM and keeps its output open for half a minute, which a child starts before it ends.
class DeafProcess {
 public:
  DeafProcess() {
    std::string pattern = (std::filesystem::temp_directory_path() / "graphpipe-process-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    std::ofstream(folder_ + "/deaf.sh")
        << "trap '' TERM\necho head\necho $$ > new\nmv new pid\nfor second in $(seq 30); "
           "do sleep 1; done\n";
  }
  ~DeafProcess() { std::filesystem::remove_all(folder_); }
  DeafProcess(const DeafProcess&) = delete;
  DeafProcess& operator=(const DeafProcess&) = delete;

  /// A child that goes on with these words of a shell once the process is deaf.
  Command left_behind_by(const std::string& words) const {
    return {.arguments = {"sh", "-c", "sh deaf.sh & until [ -e pid ]; do sleep 0.01; done; " + words},
            .working_folder = folder_,
            .own_group = true};
  }
  bool has_started() const {
    return becomes([&] { return std::filesystem::exists(folder_ + "/pid"); });
  }
  /// Or only waits to be collected by whoever has inherited it.
  bool is_gone() const {
    return becomes([&] {
      const std::string now = read("/proc/" + read_number() + "/stat");
      return now.empty() || now.find(") Z") != std::string::npos;
    });
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string read_number() const { return std::to_string(std::stoi(read(folder_ + "/pid"))); }
  std::string folder_;
};

}  // namespace

TEST_CASE("a child gets its arguments as they are: no shell reads them") {
  const auto finished = run_and_collect({.arguments = {"printf", "%s|", "a b", "$HOME", "`id`", ";ls"}});
  REQUIRE(finished.ok());
  CHECK(finished->ending.ok());
  CHECK(finished->output == "a b|$HOME|`id`|;ls|\n");
}

TEST_CASE("exit codes, signals, folders and variables arrive") {
  CHECK(run_and_collect({.arguments = {"sh", "-c", "exit 7"}})->ending.exit_code == 7);
  CHECK(run_and_collect({.arguments = {"sh", "-c", "kill -9 $$"}})->ending.signal == 9);
  CHECK(run_and_collect({.arguments = {"pwd"}, .working_folder = "/"})->output == "/\n");
  CHECK(run_and_collect({.arguments = {"sh", "-c", "echo $GP_TEST"}, .environment = {"GP_TEST=x y"}})->output ==
        "x y\n");
}

TEST_CASE("a program that does not exist is an environment error") {
  const auto finished = run_and_collect({.arguments = {"no-such-program-here"}});
  REQUIRE_FALSE(finished.ok());
  CHECK(finished.problems().front().code == Code::kEnvironment);
}

TEST_CASE("when one child fails the others are stopped") {
  const std::vector<Command> commands{{.arguments = {"sleep", "60"}}, {.arguments = {"sh", "-c", "exit 3"}}};
  const auto endings = run_processes(commands, 0.05, {});
  REQUIRE(endings.ok());
  CHECK((*endings)[1].exit_code == 3);
  CHECK((*endings)[0].signal != 0);
}

TEST_CASE("children that are all suspended are ended, since none of them could tell; one that goes on lets them be") {
  const auto start = std::chrono::steady_clock::now();
  const Command suspends_itself{.arguments = {"sh", "-c", "kill -STOP $$"}};
  const auto ended =
      run_processes({suspends_itself, {.arguments = {"true"}}, suspends_itself}, 1, {}, OnInterrupt::kEnd, 0.2);
  REQUIRE(ended.ok());
  CHECK(seconds_since(start) < 10);
  CHECK((*ended)[0].was_suspended);
  CHECK((*ended)[0].stopped_by_us);
  CHECK_FALSE((*ended)[1].was_suspended);
  CHECK((*ended)[2].was_suspended);

  const Command is_woken{.arguments = {"sh", "-c", "(sleep 0.5; kill -CONT $$) & kill -STOP $$; wait"}};
  const auto woken = run_processes({is_woken, {.arguments = {"sleep", "1"}}}, 1, {}, OnInterrupt::kEnd, 0.2);
  REQUIRE(woken.ok());
  CHECK((*woken)[0].ok());
  CHECK_FALSE((*woken)[0].was_suspended);
}

TEST_CASE("children that were suspended as long as this process was go on with it") {
  const pid_t runner = fork();
  if (runner == 0) {
    const auto endings = run_processes({{.arguments = {"sleep", "4"}}}, 1, {}, OnInterrupt::kEnd, 0.8);
    _exit(endings.ok() && endings->front().ok() ? 0 : 1);
  }
  pid_t child = 0;
  REQUIRE(becomes([&] {
    const std::string process = std::to_string(runner);
    std::ifstream("/proc/" + process + "/task/" + process + "/children") >> child;
    return child > 0;
  }));
  const auto pause = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  kill(runner, SIGSTOP);
  kill(child, SIGSTOP);
  pause(1500);
  kill(runner, SIGCONT);  // it sees its child suspended, and has been away for longer than it allows
  pause(300);
  kill(child, SIGCONT);
  int status = -1;
  CHECK(waitpid(runner, &status, 0) == runner);
  CHECK(status == 0);
}

TEST_CASE("a child that we stop is told from one that failed, and who failed first is known") {
  // The second fails because of the third, the first must be stopped.
  const auto endings = run_processes({{.arguments = {"sleep", "60"}},
                                      {.arguments = {"sh", "-c", "sleep 0.3; exit 6"}},
                                      {.arguments = {"sh", "-c", "exit 3"}}},
                                     1, {});
  REQUIRE(endings.ok());
  const Ending &stopped = (*endings)[0], &second = (*endings)[1], &first = (*endings)[2];
  CHECK(stopped.stopped_by_us);
  CHECK_FALSE(second.stopped_by_us);
  CHECK_FALSE(first.stopped_by_us);
  CHECK(first.order == 0);
  CHECK(second.order == 1);
  CHECK(stopped.order == 2);
}

TEST_CASE("what a child leaves behind with its output open, deaf to SIGTERM, is not waited for and is killed") {
  for (const std::string end : {"exit 0", "exit 1"}) {
    CAPTURE(end);
    const DeafProcess deaf;
    const auto start = std::chrono::steady_clock::now();
    const auto finished = run_and_collect(deaf.left_behind_by(text("printf tail; ", end)));
    CHECK(seconds_since(start) < 20);
    REQUIRE(finished.ok());
    CHECK(finished->ending.exit_code == end[5] - '0');
    CHECK(finished->output == "head\ntail\n");
    CHECK(deaf.is_gone());
  }
}

TEST_CASE("an interrupt ends what is deaf to SIGTERM, too") {
  const DeafProcess deaf;
  const pid_t launcher = fork();
  if (launcher == 0) {
    catch_interrupts();
    const auto finished = run_and_collect(deaf.left_behind_by("exec sleep 60"));
    _exit(finished.ok() && interrupted() && finished->ending.signal == SIGTERM ? 0 : 1);
  }
  REQUIRE(launcher > 0);
  REQUIRE(deaf.has_started());
  kill(launcher, SIGTERM);
  const auto start = std::chrono::steady_clock::now();
  int status = -1;
  while (waitpid(launcher, &status, WNOHANG) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(seconds_since(start) < 20);
  CHECK(status == 0);
  CHECK(deaf.is_gone());
}

TEST_CASE("a descriptor that a child inherits is its alone: its end is seen when the child ends") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const std::string number = std::to_string(ends[1]);
  const auto endings =
      run_processes({{.arguments = {"sh", "-c", "echo hello >&" + number}, .inherited_descriptors = {ends[1]}}}, 1, {});
  REQUIRE(endings.ok());
  CHECK(endings->front().ok());
  char words[16];
  CHECK(read(ends[0], words, sizeof words) == 6);
  CHECK(read(ends[0], words, sizeof words) == 0);
  close(ends[0]);
}

TEST_CASE("lines of several children arrive whole, with the child's number") {
  std::vector<std::string> lines(2);
  const auto endings =
      run_processes({{.arguments = {"printf", "a\\nb"}}, {.arguments = {"printf", "c\\n"}}}, 1,
                    [&](size_t child, std::string_view line) { lines[child] += std::string(line) + ";"; });
  REQUIRE(endings.ok());
  CHECK(lines[0] == "a;b;");
  CHECK(lines[1] == "c;");
}

TEST_CASE("report numbers are read back") {
  const auto numbers = report_numbers(R"({"x": 1, "losses": [0.5, null, -2e-3], "y": []})", "losses");
  REQUIRE(numbers.ok());
  REQUIRE(numbers->size() == 3);
  CHECK((*numbers)[0] == 0.5);
  CHECK((*numbers)[1] != (*numbers)[1]);
  CHECK((*numbers)[2] == -2e-3);
  CHECK(report_numbers(R"({"y": []})", "y")->empty());
  CHECK_FALSE(report_numbers(R"({"losses": [1, 2)", "losses").ok());
  CHECK_FALSE(report_numbers("{}", "losses").ok());
}
