#include "check.h"

int main(int argc, char** argv) { return unpaced::test::run_all(argc, argv); }
