-- For trying out only; a real password does not belong into a file.
ALTER ROLE walpost PASSWORD 'walpost';
