-- Until now the detail stood behind the outcome.
UPDATE mediadock.requests SET poll_outcome = split_part(poll_outcome, ': ', 1), poll_detail = substr(poll_outcome, strpos(poll_outcome, ': ') + 2)
WHERE poll_outcome LIKE '%: %';
