#pragma once
// One process that becomes several ranks (wire/rank_words.h).

#include <string>
#include <vector>

namespace graphpipe::runtime {

/// The words that this process runs by: its own, unless a launcher has asked it for several ranks. Then it starts a
/// process for each, in which this returns the words of that rank, tells the launcher their ids, or why there cannot be
/// so many, and ends; they are the launcher's children from then on, if it has made itself their subreaper (prctl(2)),
/// and go on when it lets them. Needs: one thread, before any is started.
std::vector<std::string> words_of_rank(std::vector<std::string> own);

}  // namespace graphpipe::runtime
