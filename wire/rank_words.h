#pragma once
// How a launcher asks one process of a folder's program for several ranks: that process loads LibTorch, whose tables of
// operators take some 0.3 s of processor time and 60 MB, and becomes every rank by a fork of its own.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::wire {

/// A variable: the descriptor of a stream that the process reads the words of its ranks from, to the end, and to which
/// it writes the ids of their processes, a line each, or what hindered it (problem_line.h).
inline constexpr const char* kRanksVariable = "GRAPHPIPE_RANKS_FROM";

struct RankWords {
  /// As of main(), the program first; at least that.
  std::vector<std::string> arguments;
  /// What its standard output becomes.
  int output = -1;
  /// It waits for a byte from there, until the launcher knows it and is its parent; at the end of the stream it ends.
  int go = -1;
  /// Those that it keeps, of all that the process has.
  std::vector<int> descriptors;
};

std::string rank_words_text(const std::vector<RankWords>& ranks);
/// Nothing for any other text.
std::optional<std::vector<RankWords>> parse_rank_words(std::string_view text);

}  // namespace graphpipe::wire
