/* Leave.pml - leaving is told from failing (runtime/host/Waiting.cpp)
 *
 * A producer either signals, or tells of an error, or does neither, and then
 * leaves the group. The consumer may say "it left while I waited" only in the
 * third case.
 *
 * NO_SECOND_LOOK must not be done: believe that it left without one more look at
 * the flag.
 */

bool flag = false;
bool told = false;
bool left = false;

active proctype producer() {
  if
  :: flag = true
  :: told = true
  :: skip
  fi;
  left = true
}

active proctype consumer() {
  bool gone;
  bool goneBefore = false;
  do
  :: flag -> break
  :: else ->
     gone = left;
     if :: told -> break :: else fi;
#ifdef NO_SECOND_LOOK
     goneBefore = true;
#endif
     if
     :: gone && goneBefore -> assert(!flag && !told); break
     :: else -> goneBefore = gone
     fi
  od
}
