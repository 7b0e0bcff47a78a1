#include "runtime/launch/fork_ranks.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "support/text.h"
#include "wire/exit_codes.h"
#include "wire/rank_words.h"

namespace graphpipe::runtime {
namespace {

std::string read_to_end(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(descriptor, buffer, sizeof(buffer))) != 0;) {
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

/// Until then the launcher is not this process's parent, whose death is to end it (run_main.h).
void wait_for_end_of(pid_t process) {
  while (getppid() == process) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void become(const wire::RankWords& rank, size_t number, const std::vector<wire::RankWords>& all, int talk) {
  dup2(rank.output, STDOUT_FILENO);
  close(talk);
  for (const wire::RankWords& other : all) {
    close(other.output);
    if (&other == &rank) continue;
    std::ranges::for_each(other.descriptors, close);
  }
  prctl(PR_SET_NAME, text("device", number).c_str());  // that of ps and top
}

[[noreturn]] void end_with(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

std::vector<std::string> words_of_rank(std::vector<std::string> own) {
  const char* const variable = std::getenv(wire::kRanksVariable);
  int talk = -1;
  if (variable == nullptr || !read_number(variable, talk)) return own;
  unsetenv(wire::kRanksVariable);
  const auto ranks = wire::parse_rank_words(read_to_end(talk));
  if (!ranks || ranks->empty()) {
    std::fprintf(stderr, "error: %s=%d names no stream of ranks' words\n", wire::kRanksVariable, talk);
    end_with(wire::kExitUsage);
  }
  const pid_t self = getpid();
  std::string ids;
  for (size_t i = 0; i < ranks->size(); ++i) {
    const pid_t process = fork();
    if (process == 0) {
      become((*ranks)[i], i, *ranks, talk);
      wait_for_end_of(self);
      return (*ranks)[i].arguments;
    }
    if (process < 0) {
      std::fprintf(stderr, "error: the process of rank %zu cannot be started: %s\n", i, std::strerror(errno));
      end_with(wire::kExitEnvironment);  // the others wait for nobody: the launcher ends them
    }
    ids += text(process, "\n");
  }
  const bool told = write(talk, ids.data(), ids.size()) == static_cast<ssize_t>(ids.size());
  end_with(told ? wire::kExitOk : wire::kExitPeerFailed);
}

}  // namespace graphpipe::runtime
