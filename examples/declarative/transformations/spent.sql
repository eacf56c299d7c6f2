-- Computed anew by each run.
CREATE MATERIALIZED VIEW spent AS
SELECT customer, count(*) AS orders, sum(cents) AS cents FROM orders GROUP BY customer;
