#include "runtime/launch/fork_ranks.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/text.h"
#include "wire/exit_codes.h"
#include "wire/problem_line.h"
#include "wire/rank_words.h"

namespace graphpipe::runtime {
namespace {

[[noreturn]] void end_with(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

std::string read_to_end(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(descriptor, buffer, sizeof(buffer))) != 0;) {
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

void wait_for_go(int descriptor) {
  char byte = 0;
  ssize_t count = 0;
  while ((count = read(descriptor, &byte, 1)) < 0 && errno == EINTR) {
  }
  if (count != 1) end_with(wire::kExitPeerFailed);
  close(descriptor);
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
  std::fflush(nullptr);  // what the process has in its buffers is not said by each of its forks
  std::string ids;
  for (size_t i = 0; i < ranks->size(); ++i) {
    const pid_t process = fork();
    if (process == 0) {
      become((*ranks)[i], i, *ranks, talk);
      wait_for_go((*ranks)[i].go);
      return (*ranks)[i].arguments;
    }
    if (process < 0) {
      ids =
          wire::problem_line({.code = Code::kEnvironment,
                              .message = text("the process of rank ", i, " cannot be started: ", std::strerror(errno)),
                              .hint = "raise the limit of processes (ulimit -u), or free memory"}) +
          "\n";
      break;
    }
    ids += text(process, "\n");
  }
  const bool told = write(talk, ids.data(), ids.size()) == static_cast<ssize_t>(ids.size());
  end_with(told ? wire::kExitOk : wire::kExitPeerFailed);
}

}  // namespace graphpipe::runtime
