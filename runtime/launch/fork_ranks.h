#pragma once
// One process that becomes several ranks (wire/rank_words.h).

#include <string>
#include <vector>

namespace graphpipe::runtime {

/// The words that this process runs by: its own, unless a launcher has asked it for several ranks. Then it starts a
/// process for each, in which this returns the words of that rank, tells the launcher their ids and ends; the processes
/// are the launcher's children from then on, if it has made itself their subreaper (prctl(2)). Ends the process with
/// kExitEnvironment if there is no memory for another one. Needs: one thread, before any is started.
std::vector<std::string> words_of_rank(std::vector<std::string> own);

}  // namespace graphpipe::runtime
