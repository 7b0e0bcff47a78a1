#include "tests/runtime/run_programs.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "runtime/launch/sockets.h"
#include "runtime/main.h"
#include "wire/problem_line.h"
#include "wire/secret.h"

namespace graphpipe::runtime::test {
namespace {

int next_run = 0;

std::string out_path(const std::string& folder, int run, size_t rank) {
  return folder + "/run" + std::to_string(run) + "." + std::to_string(rank);
}

pid_t spawn(const std::string& path, std::vector<std::string> arguments,
            const std::function<int(int, char**)>& main_function, const std::string& output = "") {
  arguments.insert(arguments.begin(), "program");
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int out = open((output.empty() ? path + ".out" : output).c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  const int err = open((path + ".err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  dup2(out, 1);
  dup2(err, 2);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const int code = main_function(static_cast<int>(argv.size()), argv.data());
  fflush(nullptr);
  _exit(code);
}

int wait_for(pid_t pid, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return -2;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

LinkedProgram linked(const DeviceProgram& program) {
  return {&program, program.stages.data(), static_cast<int>(program.stages.size())};
}

}  // namespace

ProcessGroup::ProcessGroup(const std::vector<DeviceProgram>& programs, const std::string& folder,
                           std::vector<std::string> arguments, const std::function<void(size_t)>& in_child)
    : folder_(folder), run_(next_run++) {
  int32_t port = 0;
  Descriptor listener = listen_at("127.0.0.1", port);
  setenv(wire::kSecretVariable, "the secret of all runs of these tests", 1);
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    std::vector<std::string> own = arguments;
    for (const std::string& word :
         {std::string("--folder"), folder, std::string("--rank"), std::to_string(rank), std::string("--world-size"),
          std::to_string(programs.size()), std::string("--master-port"), std::to_string(port), std::string("--parent"),
          std::to_string(getpid())})
      own.push_back(word);
    if (rank == 0) own.insert(own.end(), {"--listen-fd", std::to_string(listener.get())});
    pids_.push_back(spawn(out_path(folder, run_, rank), own, [&](int argc, char** argv) {
      if (in_child) in_child(rank);
      return run_device(linked(programs[rank]), argc, argv);
    }));
  }
}

ProcessGroup::~ProcessGroup() {
  for (pid_t pid : pids_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void ProcessGroup::kill_rank(size_t rank, int signal) const { kill(pids_[rank], signal); }

std::vector<RunEnd> ProcessGroup::wait(double seconds) {
  std::vector<RunEnd> ends;
  for (size_t rank = 0; rank < pids_.size(); ++rank) {
    RunEnd end;
    end.exit_code = wait_for(pids_[rank], seconds);
    end.errors = read_file(out_path(folder_, run_, rank) + ".err");
    std::istringstream lines(read_file(out_path(folder_, run_, rank) + ".out"));
    for (std::string line; std::getline(lines, line);) {
      const auto problem = wire::parse_problem_line(line);
      (problem ? end.errors : end.output) += (problem ? to_line(*problem) : line) + "\n";
    }
    ends.push_back(std::move(end));
  }
  pids_.clear();
  return ends;
}

RunEnd run_serial_process(const std::vector<DeviceProgram>& programs, const std::string& folder,
                          std::vector<std::string> arguments, const std::string& output) {
  arguments.insert(arguments.end(), {"--folder", folder});
  const std::string path = out_path(folder, next_run++, 0);
  std::vector<LinkedProgram> all;
  for (const DeviceProgram& program : programs) all.push_back(linked(program));
  const auto count = static_cast<int>(all.size());
  const pid_t pid = spawn(
      path, arguments, [&](int argc, char** argv) { return run_serial(all.data(), count, argc, argv); }, output);
  const int code = wait_for(pid, 60);
  return {code, read_file(path + ".out"), read_file(path + ".err")};
}

std::vector<std::string> TrainingFlags::words(const std::string& folder, const std::string& tag,
                                              const std::vector<std::string>& more) const {
  const std::string saved = folder + "/" + tag;
  std::vector<std::string> words = {
      "--data", folder,   "--steps",    std::to_string(steps), "--lr",      lr, "--momentum", momentum,
      "--json", "--save", saved + ".w", "--save-gradients",    saved + ".g"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

RunEnd run_all(const std::vector<DeviceProgram>& programs, const std::string& folder,
               const std::vector<std::string>& arguments, int exit_code) {
  const std::vector<RunEnd> ends = ProcessGroup(programs, folder, arguments).wait(60);
  for (const RunEnd& end : ends) {
    CAPTURE(end.errors);
    CHECK(end.exit_code == exit_code);
  }
  return ends.front();
}

std::string read_file(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::vector<double> numbers_of(const std::string& json, const std::string& name) {
  std::vector<double> numbers;
  const size_t key = json.find("\"" + name + "\": [");
  if (key == std::string::npos) return numbers;
  std::istringstream list(json.substr(json.find('[', key) + 1));
  for (double number = 0; list >> number; list.ignore(1)) numbers.push_back(number);
  return numbers;
}

}  // namespace graphpipe::runtime::test
