#include "connections/address_turns.h"

#include <algorithm>

namespace unpaced {

void AddressTurns::push(Waiting connection) {
  std::deque<int>& its = of_[connection.from];
  if (its.empty()) turns_.push_back(connection.from);
  its.push_back(connection.fd);
  ++n_;
}

Waiting AddressTurns::pop() {
  const ClientAddress from = turns_.front();
  turns_.pop_front();
  const auto its = of_.find(from);
  const int fd = its->second.front();
  its->second.pop_front();
  if (its->second.empty()) {
    of_.erase(its);
  } else {
    turns_.push_back(from);
  }
  --n_;
  return {fd, from};
}

int AddressTurns::drop_from_most(bool oldest) {
  const auto most = std::max_element(of_.begin(), of_.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  std::deque<int>& its = most->second;
  const int fd = oldest ? its.front() : its.back();
  if (oldest) {
    its.pop_front();
  } else {
    its.pop_back();
  }
  if (its.empty()) {
    turns_.erase(std::find(turns_.begin(), turns_.end(), most->first));
    of_.erase(most);
  }
  --n_;
  return fd;
}

std::vector<int> AddressTurns::take_all() {
  std::vector<int> everybody;
  while (!empty()) everybody.push_back(pop().fd);
  return everybody;
}

}  // namespace unpaced
